"""Other people's environments that break their own contracts: PyMARL's, Gymnasium's, PettingZoo's."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from host_envs import TwoPaths


def raising(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the game is gone")


INFO = {"n_agents": 2, "n_actions": 3, "obs_shape": 2, "state_shape": 3, "episode_limit": 6}

# fault -> (method, what it is replaced by; it gets the original's result), words of the complaint
MARL: dict[str, tuple[str, Any, str]] = {
    "info none": ("get_env_info", lambda _: None, "`get_env_info()`"),
    "info empty": ("get_env_info", lambda _: {}, "gives no whole number as n_agents"),
    "info floats": ("get_env_info", lambda _: INFO | {"n_agents": 2.0}, "gives no whole number as n_agents"),
    "info zero": ("get_env_info", lambda _: INFO | {"n_agents": 0}, "spec.n_agents is 0"),
    "info enormous": ("get_env_info", lambda _: INFO | {"obs_shape": 10**14}, "this machine has"),
    "info raises": ("get_env_info", raising, "RuntimeError: the game is gone"),
    "info wrong": ("get_env_info", lambda _: INFO | {"state_shape": 9}, "state of shape (3,)"),
    "obs none": ("get_obs", lambda _: None, "get_obs"),
    "obs one": ("get_obs", lambda obs: obs[:1], "obs"),
    "obs ragged": ("get_obs", lambda obs: [obs[0], obs[1][:1]], "obs"),
    "obs NaN": ("get_obs", lambda obs: [o * np.nan for o in obs], "NaN or infinity in obs"),
    "obs 1e300": ("get_obs", lambda obs: [o + 1e300 for o in obs], "obs"),
    "obs text": ("get_obs", lambda obs: [["a", "b"]] * 2, "obs"),
    "state none": ("get_state", lambda _: None, "state"),
    "state raises": ("get_state", raising, "RuntimeError: the game is gone"),
    "avail none": ("get_avail_actions", lambda _: None, "avail"),
    "avail zero": ("get_avail_actions", lambda a: [[0, 0, 0]] * 2, "no available action"),
    "avail short": ("get_avail_actions", lambda a: a[:1], "avail of shape (1, 3)"),
    "step none": ("step", lambda _: None, "`step`"),
    "step four": ("step", lambda r: (*r, 1), "`step`"),
    "step raises": ("step", raising, "`step(action)` raised RuntimeError: the game is gone"),
    "step info none": ("step", lambda r: (r[0], r[1], None), "info"),
    "reward text": ("step", lambda r: ("much", *r[1:]), "reward"),
    "reward NaN": ("step", lambda r: (float("nan"), *r[1:]), "the reward is NaN or infinite"),
    "reset raises": ("reset", raising, "`reset(seed)` raised RuntimeError: the game is gone"),
    "no end": ("step", lambda r: (r[0], False, r[2]), "goes on after spec.episode_limit = 6"),
}


class Marl(TwoPaths):
    """PyMARL's interface, one method wrong."""

    def __init__(self, fault: str = "") -> None:
        super().__init__(seed=0)
        if fault:
            method, change, _ = MARL[fault]
            original = getattr(self, method)
            setattr(self, method, lambda *args: change(original(*args)))


# fault -> (method, change), words of the complaint
GYM: dict[str, tuple[str, Any, str]] = {
    "reset obs only": ("reset", lambda r: r[0], "`reset`"),
    "reset none": ("reset", lambda r: None, "`reset`"),
    "reset raises": ("reset", raising, "RuntimeError: the game is gone"),
    "step four": ("step", lambda r: r[:4], "`step"),
    "step raises": ("step", raising, "RuntimeError: the game is gone"),
    "obs short": ("step", lambda r: (r[0][:1], *r[1:]), "obs of shape (1, 1)"),
    "obs NaN": ("step", lambda r: (r[0] * np.nan, *r[1:]), "NaN or infinity in obs"),
    "obs text": ("step", lambda r: ("left", *r[1:]), "numbers are needed"),
    "reward none": ("step", lambda r: (r[0], None, *r[2:]), "reward"),
    "reward NaN": ("step", lambda r: (r[0], np.nan, *r[2:]), "the reward is NaN or infinite"),
    "info none": ("step", lambda r: (*r[:4], None), "info"),
    "mask empty": ("step", lambda r: (*r[:4], {"action_mask": [0, 0]}), "no available action"),
    "mask long": ("step", lambda r: (*r[:4], {"action_mask": [1, 1, 1]}), "avail of shape (1, 3)"),
}


def gym(fault: str = "", kind: str = "") -> Any:
    """A Gymnasium environment, one method wrong, or a space that EMU cannot use."""
    import gymnasium
    from gymnasium import spaces

    class Line(gymnasium.Env):
        observation_space: Any = spaces.Dict({}) if kind == "obs" else spaces.Box(-9, 9, (2,))
        action_space: Any = {"actions": spaces.MultiBinary(2), "bounds": spaces.Box(-np.inf, np.inf, (1,))}.get(
            kind, spaces.Discrete(2)
        )

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.time = 0
            return _changed("reset", fault, (np.zeros(2, np.float32), {}), GYM)

        def step(self, action: Any) -> Any:
            self.time += 1
            return _changed("step", fault, (np.ones(2, np.float32), 1.0, self.time > 3, False, {}), GYM)

    return Line()


ZOO: dict[str, tuple[str, Any, str]] = {
    "reset none": ("reset", lambda r: None, "`reset"),
    "reset raises": ("reset", raising, "RuntimeError: the game is gone"),
    "reset others": ("reset", lambda r: ({"c": np.zeros(2)}, {}), "`reset"),
    "step four": ("step", lambda r: r[:4], "`step"),
    "step raises": ("step", raising, "RuntimeError: the game is gone"),
    "obs long": ("step", lambda r: ({a: np.zeros(5) for a in "ab"}, *r[1:]), "obs"),
    "obs NaN": ("step", lambda r: ({a: np.full(2, np.nan) for a in "ab"}, *r[1:]), "NaN or infinity in obs"),
    "rewards text": ("step", lambda r: (r[0], {"a": "much"}, *r[2:]), "reward"),
    "rewards list": ("step", lambda r: (r[0], [1.0, 2.0], *r[2:]), "reward"),
    "infos none": ("step", lambda r: (*r[:4], None), "info"),
}


def zoo(fault: str = "", kind: str = "") -> Any:
    """A PettingZoo environment of two agents, one method wrong, or spaces that EMU cannot use."""
    from gymnasium import spaces
    from pettingzoo import ParallelEnv

    class Pair(ParallelEnv):
        metadata: ClassVar[Any] = {"name": "pair"}
        possible_agents: Any = [] if kind == "nobody" else ["a", "b"]
        max_cycles = "many" if kind == "limit" else 4

        def observation_space(self, agent: Any) -> Any:
            return spaces.Text(5) if kind == "obs" else spaces.Box(-9, 9, (2,))

        def action_space(self, agent: Any) -> Any:
            return spaces.Box(-1, 1, (1,)) if kind == "actions" else spaces.Discrete(2)

        def reset(self, seed: Any = None, options: Any = None) -> Any:
            self.time, self.agents = 0, list(self.possible_agents)
            return _changed("reset", fault, ({a: np.zeros(2, np.float32) for a in "ab"}, {a: {} for a in "ab"}), ZOO)

        def step(self, actions: Any) -> Any:
            self.time += 1
            over = self.time >= 4
            self.agents = [] if over else self.agents
            numbers = ({a: np.ones(2, np.float32) for a in "ab"}, {a: 1.0 for a in "ab"})
            flags = ({a: over for a in "ab"}, {a: False for a in "ab"}, {a: {} for a in "ab"})
            return _changed("step", fault, (*numbers, *flags), ZOO)

    return Pair()


def _changed(method: str, fault: str, result: Any, table: dict[str, tuple[str, Any, str]]) -> Any:
    wrong, change, _ = table.get(fault, ("", None, ""))
    return change(result) if wrong == method else result
