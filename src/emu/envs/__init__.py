"""Environments: the protocol, the registry, the checker, and those that come with the package."""

from emu.envs import football, smac, smacv2
from emu.envs.protocols import Drawable, Env, PythonEnv
from emu.envs.registry import make, register, register_adapter, registered, registered_adapters
from emu.envs.spec import EnvSpec, View

__all__ = [
    "Drawable",
    "Env",
    "EnvSpec",
    "PythonEnv",
    "View",
    "make",
    "register",
    "register_adapter",
    "registered",
    "registered_adapters",
]

_GRID, _MATRIX = "emu.envs.gridworld:GridWorld", "emu.envs.matrix:named"

register("gridworld", _GRID, "two agents must arrive together; arriving alone costs (EMC's didactic example)")
register("gridworld/small", _GRID, "the smaller, kinder set-up: 9 x 12, penalty 0.5", rows=9, penalty=0.5)
register(
    "gridworld/tiny",
    _GRID,
    "5 x 6, penalty 0.5, 12 steps: for tests and first looks",
    rows=5,
    columns=6,
    limit=12,
    penalty=0.5,
)
register(
    "matrix/coordination",
    _MATRIX,
    "one-step payoff game, additive: every mixer can represent it",
    game="coordination",
)
register("matrix/monotonic", _MATRIX, "one-step payoff game, monotonic but not additive", game="monotonic")
register(
    "matrix/nonmonotonic",
    _MATRIX,
    "one-step payoff game that defeats VDN and QMIX (QTRAN's)",
    game="nonmonotonic",
)
register("matrix/climbing", _MATRIX, "the climbing game: three actions, a hidden best pair", game="climbing")
smacv2.register_all()
smac.register_all()  # declarations only: nothing heavy is imported until a map is made
football.register_all()

_ATARI = "emu.envs.atari.env:AtariEnv"
register("atari/breakout", _ATARI, "the Atari game Breakout on pictures (needs ale-py)", game="breakout")
register("atari/alien", _ATARI, "the Atari game Alien on pictures (needs ale-py)", game="alien")

_ADAPTERS = "emu.envs.adapters"
register_adapter("pymarl", f"{_ADAPTERS}.pymarl:PyMarlEnv", "any object with the methods of PyMARL's MultiAgentEnv")
register_adapter(
    "pettingzoo", f"{_ADAPTERS}.pettingzoo:PettingZooEnv", "a module or function of PettingZoo's parallel API"
)
register_adapter("jaxmarl", f"{_ADAPTERS}.jaxmarl:JaxMarlEnv", "SMAX, MPE and others of JaxMARL, compiled")
register_adapter("gymnasium", f"{_ADAPTERS}.gymnasium:GymnasiumEnv", "one agent with discrete or continuous actions")
register_adapter(
    "gymnasium_team", f"{_ADAPTERS}.gymnasium_team:GymnasiumTeam", "a team in Gymnasium's multi-agent form"
)
register_adapter("lbf", f"{_ADAPTERS}.foraging:ForagingEnv", "level-based foraging: Foraging-8x8-2p-3f-v3 and others")
register_adapter("rware", f"{_ADAPTERS}.warehouse:WarehouseEnv", "the robotic warehouse: rware-tiny-2ag-v2 and others")
