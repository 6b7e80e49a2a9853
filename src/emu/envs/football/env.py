"""Google Research Football's academy tasks for a team: the real engine, one of its players for every agent.

actions        19, all always available: idle, eight directions, three passes, shot, sprint, and releases
state, obs     26, 30 or 34 numbers: see `features`
reward         "paper": +1 when scoring, -1 when conceding
               "authors": +100 when scoring, else -1 on the step that ends the episode
end            a goal, the ball out of play or with the other team (all the engine's); the ball or an agent in
               the own half; these terminate. Step 150 truncates.
won            a goal was scored
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from emu.envs.football import engine
from emu.envs.football.features import Pitch, observations_of, read, state_of
from emu.envs.football.scenarios import SCENARIOS
from emu.envs.protocols import PythonEnv
from emu.envs.spec import EnvSpec, Sketch, View
from emu.errors import EnvError, did_you_mean
from emu.types import Outcome

ACTIONS = 19
NORMAL_PLAY = 0  # of the engine's game modes; others: kick-off, goal kick, corner, throw-in, ...
GOAL, OTHER_END = 100.0, -1.0  # the authors' reward
RETURNS = {"paper": (-1.0, 1.0), "authors": (OTHER_END, GOAL)}


class Moment(NamedTuple):
    """What a picture shows."""

    pitch: Pitch
    keeper: np.ndarray  # (2,): ours
    owner: tuple[int, int]  # of the ball: team (0: ours, 1: theirs, -1: nobody) and player
    score: tuple[int, int]
    step: int


class FootballEnv(PythonEnv):
    def __init__(self, scenario: str, reward: str = "paper", limit: int = 150) -> None:
        if scenario not in SCENARIOS:
            raise EnvError(f"No football scenario is called '{scenario}'. {did_you_mean(scenario, SCENARIOS)}")
        if reward not in RETURNS:
            raise EnvError(f"The reward is 'paper' or 'authors', not '{reward}'.")
        if limit < 1:
            raise EnvError(f"limit must be at least 1, not {limit}.")
        self.scenario, self.reward, self.limit = SCENARIOS[scenario], reward, limit
        self.spec = EnvSpec(
            name=f"football/{scenario}",
            version="1",
            n_agents=self.scenario.n_agents,
            n_actions=ACTIONS,
            obs_dim=self.scenario.feature_dim,
            state_dim=self.scenario.feature_dim,
            episode_limit=limit,
            unit_dim=2,  # the state begins with every agent's place
            has_goal=True,
            return_range=RETURNS[reward],
        )
        self._level = scenario
        self._engine: engine.Engine | None = None
        self._avail = np.ones((self.scenario.n_agents, ACTIONS), bool)

    def require(self) -> None:
        engine.require()

    def reset(self, seed: int) -> View:
        if self._engine is None:
            self._engine = engine.Engine(self._level, self.scenario.n_agents)
        self._time, self._raw = 0, self._engine.reset(seed)
        self._shown = self._raw
        return self._view()

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        assert self._engine is not None, "reset comes first"
        before = self._raw
        self._raw, ended = self._engine.step(action.tolist())
        self._time += 1
        scored, conceded = self._raw["score"]
        # After a goal or a ball that went out, everybody may be where the game will go on: show where they were.
        self._shown = before if scored or conceded or self._raw["game_mode"] != NORMAL_PLAY else self._raw
        terminated = bool(ended or _behind(read(self._raw)))
        truncated = self._time >= self.limit and not terminated
        reward = self._reward(scored, conceded, terminated or truncated)
        return self._view(), Outcome(np.float32(reward), terminated, truncated, scored > 0)

    def _reward(self, scored: int, conceded: int, over: bool) -> float:
        """An episode ends with its first goal, so the score is that of this very step."""
        if self.reward == "paper":
            return float(scored - conceded)
        return GOAL if scored else OTHER_END if over else 0.0

    def _view(self) -> View:
        pitch = read(self._raw)
        return View(observations_of(pitch), state_of(pitch), self._avail)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    # Pictures

    def snapshot(self) -> Moment:
        """What `draw` needs of the present moment."""
        raw: Mapping[str, Any] = self._shown
        owner = (int(raw["ball_owned_team"]), int(raw["ball_owned_player"]))
        scored, conceded = self._raw["score"]
        return Moment(read(raw), raw["left_team"][0], owner, (scored, conceded), self._time)

    def draw(self, state: Moment) -> np.ndarray:
        from emu.envs.football.draw import draw  # Pillow is needed only here

        return draw(self, state)

    def frames(self, states: Iterable[Moment]) -> Iterator[np.ndarray]:
        """Pictures of a recorded episode, with the ball's way."""
        from emu.envs.football.draw import frames

        return frames(self, states)

    def sketch(self, states: np.ndarray) -> Sketch:
        """Moments for a browser, from state vectors alone."""
        from emu.envs.football.draw import sketch

        return sketch(self, states)


def _behind(pitch: Pitch) -> bool:
    """Whether the ball or an agent is in the own half."""
    return bool(pitch.ball[0] < 0 or (pitch.agents[:, 0] < 0).any())
