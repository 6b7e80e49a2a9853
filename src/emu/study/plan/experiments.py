"""The paper's experiments by name: which tasks, which algorithms with which changes, how many seeds.

Figures and tables are those of Na et al. (2024). `laptop` is the same question asked with less: fewer steps and
seeds, an easy map. It is labelled as such wherever its results appear, and its numbers are not the paper's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from emu.errors import EmuError, did_you_mean
from emu.study.plan.plans import ALONE, Plan, Planned

Scale = Literal["paper", "laptop"]
SCALES: tuple[Scale, ...] = get_args(Scale)


class Variant(NamedTuple):
    """One curve."""

    label: str
    algo: str
    overrides: dict[str, Any] = {}  # noqa: RUF012 (a constant: never changed)


class Panel(NamedTuple):
    """Curves that are drawn together, on each of some tasks."""

    tasks: tuple[str, ...]
    variants: tuple[Variant, ...]


class Laptop(NamedTuple):
    """The same question asked with less: an easy task, a tenth of the steps, fewer seeds."""

    panels: tuple[Panel, ...]
    steps: int = 200_000
    seeds: tuple[int, ...] = (0, 1)
    overrides: dict[str, Any] = {}  # noqa: RUF012


class Experiment(NamedTuple):
    """One figure or table."""

    title: str
    panels: tuple[Panel, ...]
    laptop: Laptop | None = None
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


def _plain(*algos: str) -> tuple[Variant, ...]:
    return tuple(Variant(algo, algo) for algo in algos)


def _power(value: float) -> str:
    """1.3e-7, as the paper writes radii."""
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _maps(*names: str) -> tuple[str, ...]:
    return tuple(f"smac/{name}" for name in names)


def _mujoco(*names: str) -> tuple[str, ...]:
    return tuple(f"gymnasium:{name}-v4" for name in names)


RADII = (1.3e-7, 1.3e-5, 1.3e-3, 1.3e-2)
EMBEDDERS = ("random", "embnet", "dcae")
WEIGHTS = (0.01, 0.1, 0.5, 1.0, 10.0)
CASES = ("reconstruction_no_time", "reconstruction_time", "return_only", "both")

SIX_MAPS = _maps("1c3s5z", "3s_vs_5z", "5m_vs_6m", "MMM2", "6h_vs_8z", "3s5z_vs_3s6z")
ALL_METHODS = _plain("emu_qplex", "emu_cds", "emc", "cds", "qplex", "qmix")

_RADIUS_BY_EMBEDDER = tuple(
    Variant(
        f"{kind} δ={_power(radius)}",
        "no_ei",  # conventional control, so that nothing but embedder and radius differs
        {"memory.embedder.kind": kind, "memory.radius": radius},
    )
    for kind in EMBEDDERS
    for radius in RADII
)
_RADIUS = tuple(Variant(f"emu_qplex δ={_power(r)}", "emu_qplex", {"memory.radius": r}) for r in RADII)
_WEIGHT = tuple(
    Variant(f"emu_qplex λ={w:g}", "emu_qplex", {"memory.embedder.reconstruction_weight": w}) for w in WEIGHTS
)
_CASE = tuple(
    Variant(f"case {number} {case}", "emu_qplex", {"memory.embedder.loss_case": case})
    for number, case in enumerate(CASES, 1)
)
_CURIOSITY = (
    Variant("emu_qplex with curiosity", "emu_qplex", {"curiosity.scale": 0.001}),
    Variant("emu_qplex without", "emu_qplex", {"curiosity.scale": 0.0}),
    *_plain("no_ei", "qplex"),
)
_DIVERSITY = (
    Variant("emu_cds with diversity", "emu_cds", {"diversity.beta": 0.07, "diversity.beta1": 2.0}),
    Variant("emu_cds without", "emu_cds", {"diversity.beta": 0.0}),
    *_plain("cds_no_ei", "cds"),
)
_ELLIPTICAL = (
    *_plain("emu_qplex", "emc", "qplex"),
    *(Variant(f"qplex_e3b β={b:g}", "qplex_e3b", {"elliptical.scale": b}) for b in (0.01, 0.1)),
)


def _thresholds(*returns: float) -> tuple[Variant, ...]:
    judged = (Variant(f"emu_td3 R_thr={r:g}", "emu_td3", {"memory.return_threshold": r}) for r in returns)
    return (*judged, *_plain("td3"))


# With 6 updates an episode no episode returns 500 within 200,000 steps: nothing is desirable, and EMU is TD3.
_SHORT_HOPPER = {
    "learner.updates_per_episode": 0,
    "learner.updates_per_step": 0.4,
    "rollout.random_steps": 5_000,
    "memory.embedder.interval": 10_000,
    "memory.return_threshold": 200.0,
    "eval.interval": 5_000,
}

_GRIDWORLD = (Panel(("gridworld",), _plain("emu_qplex", "emc", "qplex", "qmix")),)
_WITHOUT_QPLEX = _plain("emu_qplex", "no_ei", "no_se", "emc", "qplex")  # emc is no_ei_no_se by another name
_WITHOUT_CDS = _plain("emu_cds", "cds_no_ei", "cds_no_se", "cds")

_WITH_MAPPO = _plain("emu_qplex", "emu_cds", "mappo")

EASY_MAP = "smac/3m"


# Curiosity makes an update twice as long and the easy map needs none; where it is the question, the variant says so.
_SHORT = {"rollout.epsilon_steps": 20_000, "eval.interval": 5_000, "curiosity.scale": 0.0}


def _easy(variants: tuple[Variant, ...], seeds: tuple[int, ...] = (0, 1)) -> Laptop:
    """The curves of a SMAC figure on a map that small machines can learn."""
    return Laptop((Panel((EASY_MAP,), variants),), steps=150_000, seeds=seeds, overrides=_SHORT)


_NO_WEIGHTS: dict[str, Any] = {"env_args": {"features": "random"}}

FOOTBALL = tuple(f"football/{name}" for name in ("3_vs_1_with_keeper", "counterattack_easy", "counterattack_hard"))


# With one-step targets and one update an episode nothing was learnt within 90,000 steps; with these, EMU scores.
_SHORT_FOOTBALL = {
    "learner.td_lambda": 0.8,
    "learner.updates_per_episode": 4,
    "rollout.epsilon_steps": 100_000,
    "memory.embedder.interval": 10_000,
    "eval.interval": 20_000,
}


def _three_vs_one(variants: tuple[Variant, ...]) -> Laptop:
    """The curves of a football figure on the easiest scenario."""
    return Laptop((Panel(FOOTBALL[:1], variants),), steps=350_000, overrides=_SHORT_FOOTBALL)


EXPERIMENTS: dict[str, Experiment] = {
    "gridworld": Experiment(
        "Didactic gridworld: does the incentive avoid the trap of arriving alone?",
        _GRIDWORLD,
        Laptop(_GRIDWORLD, overrides={"rollout.epsilon_steps": 80_000}),
        seeds=(0, 1, 2, 3, 4, 5),
    ),
    "smac": Experiment(
        "Six SMAC maps, two EMUs and four baselines",
        (Panel(SIX_MAPS, ALL_METHODS),),
        _easy(ALL_METHODS),
    ),
    "smac_more": Experiment(
        "Further SMAC maps",
        (Panel(_maps("3s5z", "corridor"), ALL_METHODS),),
        _easy(ALL_METHODS),
    ),
    "radius_embedder": Experiment(
        "Overall win rate by radius δ and embedder, conventional episodic control (tables)",
        (Panel(_maps("3s_vs_5z", "5m_vs_6m"), _RADIUS_BY_EMBEDDER),),
        _easy(_RADIUS_BY_EMBEDDER, seeds=(0,)),
    ),
    "radius": Experiment(
        "The radius δ of EMU on a super hard map",
        (Panel(_maps("6h_vs_8z"), _RADIUS),),
        _easy(_RADIUS),
    ),
    "reconstruction": Experiment(
        "The weight λ of reconstruction in dCAE's loss",
        (Panel(_maps("3s5z", "3s_vs_5z"), _WEIGHT),),
        _easy(_WEIGHT),
    ),
    "loss_cases": Experiment(
        "Four losses of dCAE",
        (Panel(_maps("3s5z", "3s_vs_5z"), _CASE),),
        _easy(_CASE),
    ),
    "ablation": Experiment(
        "Without the episodic incentive, without the semantic embedding, without both",
        (
            Panel(_maps("6h_vs_8z", "3s5z_vs_3s6z"), _WITHOUT_QPLEX),
            Panel(_maps("3s5z_vs_3s6z"), _WITHOUT_CDS),
        ),
        _easy(_WITHOUT_QPLEX),
    ),
    "ablation_embedding": Experiment(
        "Without the semantic embedding, beside all methods",
        (Panel(SIX_MAPS, ALL_METHODS + _plain("no_se", "cds_no_se")),),
        _easy(ALL_METHODS + _plain("no_se", "cds_no_se")),
    ),
    "curiosity": Experiment(
        "With and without the exploration reward r^c",
        (Panel(_maps("3s_vs_5z", "5m_vs_6m", "3s5z_vs_3s6z"), _CURIOSITY + _DIVERSITY),),
        _easy(_CURIOSITY),
    ),
    "e3b": Experiment(
        "The elliptical bonus in place of the incentive",  # the paper's text names only 5m_vs_6m
        (Panel(_maps("3s_vs_5z", "5m_vs_6m"), _ELLIPTICAL),),
        _easy(_ELLIPTICAL),
    ),
    "football": Experiment(
        "Three football scenarios, all methods",
        (Panel(FOOTBALL, ALL_METHODS),),
        _three_vs_one(ALL_METHODS),
    ),
    "radius_football": Experiment(
        "The radius δ of EMU in football",
        (Panel(FOOTBALL, _RADIUS),),
        _three_vs_one(_RADIUS),
    ),
    "ablation_football": Experiment(
        "EMU on CDS in football, without the incentive, without the embedding, without both",
        (Panel(FOOTBALL[:2], _WITHOUT_CDS),),
        _three_vs_one(_WITHOUT_CDS),
    ),
    "mappo": Experiment(
        "Beside MAPPO on six SMAC maps",
        (Panel(SIX_MAPS, _WITH_MAPPO),),
        _easy(_WITH_MAPPO),
    ),
    "mujoco": Experiment(
        "One agent: TD3 with EMU on Hopper, Walker2d and Humanoid (needs the extra mujoco)",
        (Panel(_mujoco("Hopper", "Walker2d", "Humanoid"), _plain("emu_td3", "td3")),),
        Laptop((Panel(_mujoco("Hopper"), _plain("emu_td3", "td3")),), 100_000, (0, 1, 2), _SHORT_HOPPER),
    ),
    "return_threshold": Experiment(
        "One agent: from which return R_thr on an episode is desirable (needs the extra mujoco)",
        (Panel(_mujoco("Hopper", "Walker2d"), _thresholds(500.0, 1000.0)),),
        Laptop((Panel(_mujoco("Hopper"), _thresholds(200.0, 400.0)),), 100_000, (0, 1), _SHORT_HOPPER),
    ),
    "atari": Experiment(
        "One agent: DQN with EMU on Breakout and Alien (needs the extra atari)",
        (Panel(("atari/breakout", "atari/alien"), _plain("emu_dqn", "dqn")),),
        Laptop(  # a tenth of the steps, and features that need no weights file
            (Panel(("atari/breakout",), (Variant("emu_dqn random features", "emu_dqn", _NO_WEIGHTS), *_plain("dqn"))),),
            overrides={"rollout.epsilon_steps": 50_000},
        ),
    ),
}


def find(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise EmuError(
            f"No study is called '{name}'. {did_you_mean(name, EXPERIMENTS)} `emu study --list` lists them all."
        )
    return EXPERIMENTS[name]


def plan(name: str, scale: Scale = "paper", seeds: Iterable[int] | None = None, tasks: Sequence[str] = ()) -> Plan:
    """All runs of a study. `seeds` chooses some or others; `tasks` some of the study's, at laptop scale any."""
    experiment = find(name)
    small = experiment.laptop if scale == "laptop" else None
    changes = {**ALONE, **({"steps": small.steps, **small.overrides} if small else {})}
    numbers = list(seeds if seeds is not None else (small or experiment).seeds)
    panels = _on(tasks, small.panels) if small and tasks else _some(tasks, (small or experiment).panels, name)
    runs = [
        Planned(task, variant.label, variant.algo, seed, {**changes, **variant.overrides})
        for panel in panels
        for task in panel.tasks
        for variant in panel.variants
        for seed in numbers
    ]
    return Plan(name, experiment.title, scale, runs)


def _on(tasks: Sequence[str], panels: Sequence[Panel]) -> list[Panel]:
    return [panel._replace(tasks=tuple(tasks)) for panel in panels]


def _some(tasks: Sequence[str], panels: Sequence[Panel], name: str) -> list[Panel]:
    known = sorted({task for panel in panels for task in panel.tasks})
    for task in tasks:
        if task not in known:
            raise EmuError(f"'{task}' is not a task of the study '{name}'. {did_you_mean(task, known)}")
    return [p._replace(tasks=tuple(task for task in p.tasks if not tasks or task in tasks)) for p in panels]
