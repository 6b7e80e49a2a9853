"""Atari games through ale-py's vector environment: C++ threads step all copies within this process.

An observation is one grey picture of 84 x 84; frames are skipped by four, the brighter of the last two pixels counts,
and an episode begins with up to 30 idle frames, drawn from its seed. A learner sees four pictures side by side, which
are put together when it needs them. The state, which the memory keeps, is the picture's features in a frozen network.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from PIL import Image

from emu.envs.protocols import VectorEnv
from emu.envs.spec import EnvSpec, View
from emu.errors import EnvError
from emu.types import Outcome

SIZE, SKIP = 84, 4


class AtariEnv(VectorEnv):
    """One agent, A actions (the game's minimal set), reward as the game counts it, no goal.

    `features` chooses the state: "none", the picture itself; "resnet18", "resnet50" or "mobilenet_v2", pre-trained,
    from torchvision's `weights` file; "random", ResNet18 before any training. The network is cut behind layer `cut` and
    averaged over `pool` x `pool` fields. `sticky` is the probability that the last action is repeated.
    """

    def __init__(
        self,
        game: str,
        features: str = "none",
        cut: str | None = None,
        pool: int = 2,
        weights: str | None = None,
        episode_limit: int = 4_500,
        sticky: float = 0.0,
    ) -> None:
        self.game, self.limit, self.sticky = game, episode_limit, sticky
        self.extractor: Any = None
        if features != "none":
            from emu.envs.atari.features.extractor import Extractor

            self.extractor = Extractor(features, (SIZE, SIZE), cut, pool, weights)
        self._vector_env = _installed()
        pixels = SIZE * SIZE
        state_dim = self.extractor.dim if self.extractor else pixels
        self.spec = EnvSpec(
            name=f"atari/{game}",
            version=_version(),
            n_agents=1,
            n_actions=int(self.open(1, 1).env.single_action_space.n),
            obs_dim=pixels,
            state_dim=state_dim,
            episode_limit=episode_limit,
            unit_dim=state_dim,
            has_goal=False,
            return_range=(-np.inf, np.inf),
            state_is_obs=self.extractor is None,
            obs_type="uint8",
            state_type="float16" if self.extractor else "uint8",
            picture=(SIZE, SIZE),
            stack=4,
        )

    def open(self, copies: int, threads: int) -> AtariCopies:
        env = self._vector_env(
            self.game,
            copies,
            num_threads=min(threads, copies),
            max_num_frames_per_episode=self.limit * SKIP,
            repeat_action_probability=self.sticky,
            img_height=SIZE,
            img_width=SIZE,
            stack_num=1,
            frameskip=SKIP,
            reward_clipping=False,  # returns should be the game's; the learner clips for itself
        )
        return AtariCopies(env)

    def states(self, obs: np.ndarray) -> np.ndarray:
        return self.extractor(obs.reshape(-1, SIZE, SIZE)) if self.extractor else obs[:, 0]

    # A single copy, for `emu check`, `emu play` and `emu render`

    @functools.cached_property
    def _one(self) -> AtariCopies:
        return self.open(1, 1)

    def reset(self, seed: int) -> View:
        return self._view(self._one.reset(np.ones(1, bool), np.array([seed])))

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        obs, outcome = self._one.step(np.asarray(action)[None])
        return self._view(obs), Outcome(*(field[0] for field in outcome))

    def _view(self, obs: np.ndarray) -> View:
        self._shown = obs[0, 0]
        return View(obs[0], self.states(obs)[0], np.ones((1, self.spec.n_actions), bool))

    def snapshot(self) -> np.ndarray:
        """The picture that is shown now."""
        return self._shown.reshape(SIZE, SIZE)

    def draw(self, state: np.ndarray) -> np.ndarray:
        """In the proportions of a television."""
        return np.asarray(Image.fromarray(state).resize((320, 420), Image.Resampling.NEAREST).convert("RGB"))


class AtariCopies:
    """ale-py's vector environment, whose copies begin episodes only when they are told to, with the seed given.

    Left alone, it begins a new episode in the step after the last one; that episode is never shown.
    """

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self, begins: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        obs, _ = self.env.reset(seed=np.asarray(seeds, np.int64), options={"reset_mask": np.asarray(begins, bool)})
        return self._flat(obs)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Outcome]:
        obs, reward, terminated, truncated, _ = self.env.step(np.ascontiguousarray(action[:, 0], np.int64))
        truncated = truncated & ~terminated
        return self._flat(obs), Outcome(reward.astype(np.float32), terminated, truncated, np.zeros(len(reward), bool))

    def _flat(self, obs: np.ndarray) -> np.ndarray:
        return obs.reshape(len(obs), 1, -1)

    def close(self) -> None:
        self.env.close()


def _installed() -> Any:
    try:
        from ale_py import AtariVectorEnv  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise EnvError("ale-py is not installed: pip install 'emu-marl[atari]'.") from error
    return AtariVectorEnv


def _version() -> str:
    from importlib.metadata import version

    return f"ale-py {version('ale-py')}, {SIZE} x {SIZE}, skip {SKIP}"
