"""Python environments for the tests of worker processes; workers import this module, so it stays light."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from emu.envs import EnvSpec, PythonEnv, View
from emu.types import Outcome

LIMIT, ACTIONS = 7, 3  # those of toys.CountingEnv; the toys import JAX, which a worker need not
NAMES = 14  # every length with both endings


class HostCounting(PythonEnv):
    """toys.CountingEnv in plain Python; the seed names the episode."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.spec = EnvSpec("counting", "1", 2, ACTIONS, 4, 4, limit, 1, True, (-1e6, 1e6))

    def reset(self, seed: int) -> View:
        self.name, self.time, self.action = seed % NAMES, 0, np.full(2, -1)
        return self.view()

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        reward = self.name + 0.125 * self.time
        self.time, self.action = self.time + 1, action
        over, odd = self.time >= 1 + self.name % LIMIT, self.name % 2 == 1
        return self.view(), Outcome(reward, over and odd, over and not odd, over and odd)

    def view(self) -> View:
        obs = np.array([[self.name, self.time, self.action[i], i] for i in range(2)], np.float32)
        return View(obs, np.array([self.name, self.time, *self.action], np.float32), np.ones((2, ACTIONS), bool))


class OwnRewards(HostCounting):
    """Agent 0 gets the reward, agent 1 twice as much."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = dataclasses.replace(self.spec, own_rewards=True)

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        view, outcome = super().step(action)
        return view, outcome._replace(reward=np.float32([outcome.reward, 2 * outcome.reward]))


class Trouble(HostCounting):
    """Goes wrong in its `at`-th step, in the first `times` copies that get there (`folder` remembers)."""

    def __init__(self, kind: str, folder: str, at: int = 5, times: int = 1) -> None:
        super().__init__()
        self.kind, self.folder, self.at, self.times, self.steps = kind, Path(folder), at, times, 0

    def reset(self, seed: int) -> View:
        if self.kind == "reset" and self.steps and self._mine():
            raise RuntimeError("no new episode")
        return super().reset(seed)

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        self.steps += 1
        view, outcome = super().step(action)
        if self.kind == "reset" or self.steps != self.at or not self._mine():
            return view, outcome
        if self.kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "hang":
            time.sleep(1000)
        if self.kind == "raise":
            raise RuntimeError("the ball is lost")
        if self.kind == "shape":
            return view._replace(obs=np.zeros((2, 5))), outcome
        if self.kind == "reward":
            return view, outcome._replace(reward=np.nan)
        wrong = np.full_like(getattr(view, self.kind), np.nan if self.kind != "avail" else False)
        return view._replace(**{self.kind: wrong}), outcome

    def _mine(self) -> bool:
        for number in range(self.times):
            try:
                (self.folder / f"{self.kind}{number}").touch(exist_ok=False)
                return True
            except FileExistsError:
                continue
        return False


class BadSeeds(HostCounting):
    """Cannot play some seeds: it raises in their first step, however often they are tried."""

    def __init__(self, seeds: list[int]) -> None:
        super().__init__()
        self.bad = set(seeds)

    def reset(self, seed: int) -> View:
        self.seed = seed
        return super().reset(seed)

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        if self.seed in self.bad:
            raise RuntimeError("this seed cannot be played")
        return super().step(action)


class Parent(HostCounting):
    """Starts a program of its own, as StarCraft does, and notes its number."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.program = subprocess.Popen(["sleep", "1000"])
        (Path(folder) / str(self.program.pid)).touch()


class Runaway(HostCounting):
    """Starts programs of its own, when it is made or in its first step, in ways that leave its process group."""

    def __init__(self, folder: str, how: str, when: str = "step") -> None:
        super().__init__()
        self.folder, self.how, self.when = Path(folder), how, when
        if when == "make":
            self.start()

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        if self.when == "step" and self.time == 0:
            self.start()
        return super().step(action)

    def start(self) -> None:
        note = f"echo > {self.folder}/$$; exec sleep 1000"
        if self.how == "setsid":
            subprocess.Popen(["sh", "-c", note], start_new_session=True)
        elif self.how == "daemon":  # its parent is gone at once
            subprocess.run(["sh", "-c", f"setsid sh -c '{note}' >/dev/null 2>&1 &"], check=True)
        elif self.how == "stopped":
            program = subprocess.Popen(["sh", "-c", note], start_new_session=True)
            while not (self.folder / str(program.pid)).exists():
                time.sleep(0.01)
            os.kill(program.pid, signal.SIGSTOP)
        elif self.how == "fork" and os.fork() == 0:
            os.setsid()
            (self.folder / str(os.getpid())).touch()
            time.sleep(1000)
        elif self.how == "copy":
            (self.folder / str(os.fork() or os.getpid())).touch()
        while self.how != "copy" and not any(self.folder.iterdir()):
            time.sleep(0.01)


class Unseeded(HostCounting):
    """Draws from NumPy's global generator, as many environments do."""

    def reset(self, seed: int) -> View:
        return super().reset(int(np.random.randint(10_000)))  # noqa: NPY002


class TwoPaths:
    """A small faithful MultiAgentEnv: two agents walk right along a corridor; the clock gives them 6 steps.

    Action 0 is for the one who has arrived, 1 is right, 2 is left (not from the first cell). They win when both stand
    on cell 3; reward 1 then.
    """

    def __init__(self, seed: int | None = None, start: int = 0) -> None:
        self.episode_limit, self.rng, self.start = 6, np.random.default_rng(seed), start

    def reset(self) -> tuple[Any, Any]:
        self.place, self.time = [self.start, int(self.rng.integers(0, 2))], 0
        return self.get_obs(), self.get_state()

    def step(self, actions: list[int]) -> tuple[float, bool, dict[str, Any]]:
        for i, action in enumerate(actions):
            assert isinstance(action, int) and self.get_avail_actions()[i][action]
            self.place[i] += (0, 1, -1)[action]
        self.time += 1
        won = self.place == [3, 3]
        info: dict[str, Any] = {"battle_won": won}
        if self.time >= self.episode_limit and not won:
            info["episode_limit"] = True
        return float(won), won or self.time >= self.episode_limit, info

    def get_obs(self) -> list[np.ndarray]:
        return [np.array([place, self.time]) for place in self.place]

    def get_state(self) -> np.ndarray:
        return np.array([*self.place, self.time])

    def get_avail_actions(self) -> list[list[int]]:
        return [[1, 0, 0] if place == 3 else [0, 1, int(place > 0)] for place in self.place]

    def get_env_info(self) -> dict[str, int]:
        return {"n_agents": 2, "n_actions": 3, "obs_shape": 2, "state_shape": 3, "episode_limit": 6}


class DeadlyPaths(TwoPaths):
    """Ends its process in its `at`-th step, in the first copy that gets there (`folder` remembers)."""

    def __init__(self, folder: str, at: int, seed: int | None = None) -> None:
        super().__init__(seed)
        self.trouble = Trouble("die", folder, at)

    def step(self, actions: list[int]) -> tuple[float, bool, dict[str, Any]]:
        self.trouble.reset(0)
        self.trouble.step(np.array(actions))
        return super().step(actions)


class WithGame(TwoPaths):
    """Needs a program of its own, as SMAC needs StarCraft; `folder` remembers the number of each.

    When the program has died, `step` raises, or with `survives` does what SMAC does: starts another, counts it, and
    calls the episode terminated with nothing in the info.
    """

    def __init__(self, folder: str, survives: bool = False, seed: int | None = None) -> None:
        super().__init__(seed)
        self.folder, self.survives, self.force_restarts = Path(folder), survives, 0
        self.game: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        self.game = subprocess.Popen(["sleep", "1000"])
        (self.folder / str(self.game.pid)).touch()

    def reset(self) -> tuple[Any, Any]:
        if self.game is None:
            self.launch()
        return super().reset()

    def step(self, actions: list[int]) -> tuple[float, bool, dict[str, Any]]:
        if self.game is None or self.game.poll() is None:
            return super().step(actions)
        if not self.survives:
            raise ConnectionError("Websocket connection closed")
        self.launch()
        self.force_restarts += 1
        return 0.0, True, {}

    def close(self) -> None:
        if self.game is not None:
            self.game.kill()
            self.game.wait()


class NoMethods:
    """Lacks all but two of the methods."""

    def reset(self) -> None: ...

    def step(self, actions: Any) -> None: ...
