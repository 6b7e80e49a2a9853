"""Environments in plain Python that break every promise; workers and the checker's process import this module.

`Hostile(fault)` is `host_envs.HostCounting` with one thing wrong, `FAULTS[fault]`: a method, and what happens
instead of it (or with its result) the third time it is called, so that a run is under way by then.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from emu.envs import PythonEnv
from host_envs import HostCounting

AT = 3


class Quiet(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


def raises(error: BaseException) -> Callable[..., Any]:
    def fault(result: Callable[[], Any]) -> Any:
        raise error

    return fault


def does(action: Callable[[], Any]) -> Callable[..., Any]:
    """Do something, then answer as usual."""

    def fault(result: Callable[[], Any]) -> Any:
        action()
        return result()

    return fault


def view(**changes: Callable[[np.ndarray], Any]) -> Callable[..., Any]:
    """Change what a step shows."""

    def fault(result: Callable[[], Any]) -> Any:
        seen, outcome = result()
        return seen._replace(**{name: change(getattr(seen, name)) for name, change in changes.items()}), outcome

    return fault


def outcome(**changes: Any) -> Callable[..., Any]:
    """Change how a step turns out."""

    def fault(result: Callable[[], Any]) -> Any:
        seen, was = result()
        return seen, was._replace(**changes)

    return fault


def answer(change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda result: change(result())


def deep(depth: int = 0) -> int:
    return deep(depth + 1)


def holds(value: float) -> Callable[[np.ndarray], np.ndarray]:
    """The same array with one other number, in double precision."""

    def change(array: np.ndarray) -> np.ndarray:
        wide = array.astype(np.float64)
        wide.flat[-1] = value
        return wide

    return change


def crash() -> None:
    ctypes.string_at(0)


def flood() -> None:
    for _ in range(2_000):
        print("\x1b[2J\x1b[31m[/bold]" * 50, flush=True)


def eat() -> None:
    keep = []
    while True:
        keep.append(np.ones(2**22))


def threads() -> None:
    threading.Thread(target=time.sleep, args=(1000,)).start()


def detach(*words: str) -> None:
    subprocess.Popen(["sleep", "1000"], start_new_session=True)


def daemonise() -> None:
    subprocess.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"], check=True)


# What the checker can be told about in this process: fault -> (method, what happens, words of the complaint)
WRONG: dict[str, tuple[str, Callable[..., Any], str]] = {
    # Exceptions, in every method
    "step raises": ("step", raises(RuntimeError("lost")), "`step(action)` raised RuntimeError: lost (tests/attack"),
    "reset raises": ("reset", raises(KeyError("seed")), "`reset(seed)` raised KeyError: 'seed'"),
    "require raises": ("require", raises(OSError("no disk")), "`require()` raised OSError: no disk"),
    "step exits": ("step", raises(SystemExit(0)), "`step(action)` raised SystemExit: 0"),
    "reset exits": ("reset", raises(SystemExit("bye")), "`reset(seed)` raised SystemExit: bye"),
    "recursion": ("step", does(deep), "raised RecursionError"),
    "memory error": ("step", raises(MemoryError()), "raised MemoryError"),
    "quiet error": ("step", raises(Quiet()), "raised Quiet: its message cannot be shown"),
    "long message": ("step", raises(ValueError("x" * 10**6)), "raised ValueError: xxx"),
    "control codes": ("step", raises(ValueError("\x1b[2J[/red]")), "raised ValueError: \\x1b[2J[/red]"),
    "assertion": ("step", raises(AssertionError()), "raised AssertionError ("),
    "stop iteration": ("step", raises(StopIteration()), "raised StopIteration"),
    # What `step` and `reset` return
    "step nothing": ("step", answer(lambda _: None), "`step` returns NoneType; expected a pair"),
    "step three": ("step", answer(lambda r: (*r, {})), "`step` returns a tuple of 3; expected a pair"),
    "step list": ("step", answer(list), "`step` returns list; expected a pair"),
    "step swapped": ("step", answer(lambda r: r[::-1]), "returns Outcome; expected emu.envs.View"),
    "reset nothing": ("reset", answer(lambda _: None), "returns NoneType; expected emu.envs.View"),
    "reset pair": ("reset", answer(lambda r: (r, {})), "returns tuple; expected emu.envs.View"),
    "view tuple": ("step", answer(lambda r: (tuple(r[0]), r[1])), "returns tuple; expected emu.envs.View"),
    "outcome tuple": ("step", answer(lambda r: (r[0], tuple(r[1]))), "tuple as outcome; expected emu.types.Outcome"),
    "outcome number": ("step", answer(lambda r: (r[0], 1.0)), "float as outcome; expected emu.types.Outcome"),
    # Views
    "obs short": ("step", view(obs=lambda a: a[:, :3]), "obs of shape (2, 3); its specification says (2, 4)"),
    "obs flat": ("step", view(obs=lambda a: a.reshape(-1)), "obs of shape (8,)"),
    "obs empty": ("step", view(obs=lambda a: a[:0]), "obs of shape (0, 4)"),
    "obs none": ("step", view(obs=lambda a: None), "obs is of type object; expected float32: it holds None"),
    "obs text": ("step", view(obs=lambda a: a.astype(str)), "obs is of type <U32; expected float32"),
    "obs complex": ("step", view(obs=lambda a: a + 1j), "obs is of type complex"),
    "obs objects": ("step", view(obs=lambda a: a.astype(object)), "obs is of type object"),
    "obs ragged": ("step", view(obs=lambda a: [[1.0], [1.0, 2.0]]), "obs is no array"),
    "obs dates": ("step", view(obs=lambda a: a.astype("M8[s]")), "obs is of type datetime64[s]"),
    "obs NaN": ("step", view(obs=lambda a: a * np.nan), "NaN or infinity in obs: nan at [0, 0]"),
    "obs infinite": ("step", view(obs=holds(np.inf)), "NaN or infinity in obs: inf at [1, 3]"),
    "obs 1e300": ("step", view(obs=holds(1e300)), "obs holds a number that float32 cannot: 1e+300 at [1, 3], type"),
    "state short": ("step", view(state=lambda a: a[:-1]), "state of shape (3,); its specification says (4,)"),
    "state column": ("step", view(state=lambda a: a[:, None]), "state of shape (4, 1)"),
    "state NaN": ("step", view(state=holds(np.nan)), "NaN or infinity in state: nan at [3], type float64"),
    "state huge": ("step", view(state=holds(-1e200)), "state holds a number that float32 cannot: -1e+200 at [3]"),
    "state none": ("step", view(state=lambda a: None), "state is of type object"),
    "avail none": ("step", view(avail=lambda a: a & False), "an agent has no available action"),
    "avail one without": (
        "step",
        view(avail=lambda a: a & [[False], [True]]),
        "no available action (every agent",
    ),
    "avail halves": ("step", view(avail=lambda a: a * 0.5), "avail holds a number that bool cannot: 0.5 at [0, 0]"),
    "avail text": ("step", view(avail=lambda a: a.astype(str)), "avail is of type <U5; expected bool"),
    "avail wide": ("step", view(avail=lambda a: np.ones((2, 9), bool)), "avail of shape (2, 9)"),
    # Outcomes
    "reward text": ("step", outcome(reward="much"), "the reward is 'much' (str); expected one number"),
    "reward none": ("step", outcome(reward=None), "the reward is None (NoneType); expected one number"),
    "reward each": ("step", outcome(reward=np.ones(2)), "it returns a reward of shape (2,); expected one number"),
    "reward list": ("step", outcome(reward=[1.0]), "it returns a reward of shape (1,)"),
    "reward complex": ("step", outcome(reward=1j), "the reward is 1j (complex)"),
    "reward NaN": ("step", outcome(reward=float("nan")), "the reward is NaN or infinite: nan, type float"),
    "reward infinite": ("step", outcome(reward=-np.inf), "the reward is NaN or infinite: -inf"),
    "reward 1e300": ("step", outcome(reward=1e300), "the reward is a number that float32 cannot hold: 1e+300"),
    "terminated text": ("step", outcome(terminated="False"), "`terminated` is 'False' (str); expected True or False"),
    "terminated count": ("step", outcome(terminated=3), "`terminated` is 3 (int); expected True or False"),
    "terminated each": (
        "step",
        outcome(terminated=np.zeros(2, bool)),
        "`terminated` is array([False, False])",
    ),
    "truncated none": ("step", outcome(truncated=None), "`truncated` is None (NoneType)"),
    "won half": ("step", outcome(won=0.5), "`won` is 0.5 (float)"),
    "both ends": ("step", outcome(terminated=True, truncated=True), "`terminated` and `truncated` are both true"),
    "no end": ("*step", outcome(terminated=False, truncated=False), "goes on after spec.episode_limit = 7 steps"),
    "return outside": ("*step", outcome(reward=5e6), "a return lies outside spec.return_range (-1000000.0, 1000000.0)"),
}

# What a specification may say: fault -> (changes, words of the complaint)
MISDESCRIBED: dict[str, tuple[dict[str, Any], str]] = {
    "agents 2.0": ({"n_agents": 2.0}, "spec.n_agents is 2.0 (float); it must be a whole number (int)"),
    "agents text": ({"n_agents": "2"}, "spec.n_agents is '2' (str)"),
    "agents true": ({"n_agents": True}, "spec.n_agents is True (bool)"),
    "agents none": ({"n_agents": None}, "spec.n_agents is None (NoneType)"),
    "agents negative": ({"n_agents": -2}, "spec.n_agents is -2; it must be at least 1"),
    "actions 0": ({"n_actions": 0}, "spec.n_actions is 0; it must be at least 1"),
    "obs list": ({"obs_dim": [4]}, "spec.obs_dim is [4] (list)"),
    "obs enormous": ({"obs_dim": 10**14}, "one episode of spec.episode_limit = 7 steps takes"),
    "limit enormous": ({"episode_limit": 10**15}, "this machine has"),
    "limit infinite": ({"episode_limit": float("inf")}, "spec.episode_limit is inf (float)"),
    "state dim NaN": ({"state_dim": float("nan")}, "spec.state_dim is nan (float)"),
    "name none": ({"name": None}, "spec.name is None (NoneType); it must be a text"),
    "version number": ({"version": 1}, "spec.version is 1 (int); it must be a text"),
    "goal text": ({"has_goal": "no"}, "spec.has_goal is 'no' (str); it must be True or False"),
    "range one": ({"return_range": 5.0}, "spec.return_range is 5.0 (float); it must be a pair of numbers"),
    "range text": ({"return_range": ("low", "high")}, "spec.return_range is ('low', 'high') (tuple)"),
    "range turned": ({"return_range": (1.0, 0.0)}, "is not (smallest, largest)"),
    "range NaN": ({"return_range": (float("nan"), 1.0)}, "is not (smallest, largest)"),
    "type unknown": ({"obs_type": "float33"}, "spec.obs_type is 'float33' (str); it must name a type of numbers"),
    "type objects": ({"state_type": "object"}, "spec.state_type is 'object' (str)"),
    "action dim": ({"action_dim": -1}, "spec.action_dim is -1; it must be at least 0"),
    "stack 0": ({"stack": 0}, "spec.stack is 0; it must be at least 1"),
    "picture": ({"picture": (2, 3)}, "spec.picture (2, 3) does not fit spec.obs_dim = 4"),
    "pictures": ({"picture": "big"}, "spec.picture is 'big' (str)"),
    "bytes": ({"obs_type": "uint8"}, "obs holds a number that uint8 cannot: -1"),
}

# What only a process of its own survives: fault -> (method, what happens, words of the complaint)
LETHAL: dict[str, tuple[str, Callable[..., Any], str]] = {
    "leaves": (
        "step",
        does(lambda: os._exit(0)),
        "the process ended by itself (exit status 0) (episode",
    ),
    "leaves in reset": (
        "reset",
        does(lambda: os._exit(3)),
        "the process ended by itself (exit status 3)",
    ),
    "hangs": ("step", does(lambda: time.sleep(1000)), "`step(action)` did not come back within"),
    "hangs in reset": ("reset", does(lambda: time.sleep(1000)), "`reset(seed)` did not come back within"),
    "spins": ("step", does(lambda: all(True for _ in iter(bool, 1))), "`step(action)` did not come back within"),
    "crashes": ("step", does(crash), "killed by SIGSEGV, a crash in compiled code (episode"),
    "aborts": ("step", does(os.abort), "killed by SIGABRT, an abort in compiled code"),
    "kills itself": ("step", does(lambda: os.kill(os.getpid(), signal.SIGKILL)), "killed by SIGKILL"),
    "kills its group": ("step", does(lambda: os.killpg(0, signal.SIGKILL)), "killed by SIGKILL"),
    "stops itself": ("step", does(lambda: os.kill(os.getpid(), signal.SIGSTOP)), "(its process is stopped)"),
    "forks": ("step", does(os.fork), "came back twice: the environment forks"),
    "eats memory": ("step", does(eat), "of memory (episode"),
    "closes files": ("step", does(lambda: os.closerange(3, 200)), "closed files that are not the environment's"),
    "asks": ("step", does(lambda: input("?")), "raised EOFError"),
    "interrupts": ("step", raises(KeyboardInterrupt()), "KeyboardInterrupt"),
    "close raises": ("close", raises(RuntimeError("stuck")), "`close()` raised RuntimeError: stuck"),
    "close hangs": ("close", does(lambda: time.sleep(1000)), "`close()` did not come back within"),
    "close leaves": ("close", does(lambda: os._exit(0)), "`close()`: the process ended by itself"),
}

# What breaks nothing, and must not be left behind: fault -> (method, what happens, words of the note)
UNTIDY: dict[str, tuple[str, Callable[..., Any], str]] = {
    "floods": ("step", does(flood), "bytes; in training what environments print is discarded"),
    "shouts": ("step", does(lambda: sys.stderr.write("\x1b[2J" * 1000)), ""),
    "threads": ("step", does(threads), ""),
    "children": (
        "step",
        does(lambda: subprocess.Popen(["sleep", "1000"])),
        "running after `close()` (",
    ),
    "detached": ("step", does(detach), "running after `close()` ("),
    "daemons": ("step", does(daemonise), "running after `close()` ("),
}

FAULTS = {**{name: row[:2] for table in (WRONG, LETHAL, UNTIDY) for name, row in table.items()}}


class Hostile(HostCounting):
    """One thing wrong; `*method` is wrong every time, others from the third call on."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault, self.calls = fault, 0
        if fault in MISDESCRIBED:
            self.spec = dataclasses.replace(self.spec, unit_dim=-1, **MISDESCRIBED[fault][0])

    def _call(self, method: str, result: Callable[[], Any]) -> Any:
        wrong, fault = FAULTS.get(self.fault, ("", None))
        if fault is None or wrong.lstrip("*") != method:
            return result()
        self.calls += 1
        once = method in ("close", "require") or wrong.startswith("*")
        return fault(result) if once or self.calls >= AT else result()

    def reset(self, seed: int) -> Any:
        return self._call("reset", lambda: HostCounting.reset(self, seed))

    def step(self, action: np.ndarray) -> Any:
        return self._call("step", lambda: HostCounting.step(self, action))

    def require(self) -> None:
        self._call("require", lambda: None)

    def close(self) -> None:
        self._call("close", lambda: None)


# Classes that fail before there is anything to play


class Unmade(HostCounting):
    def __init__(self, how: str = "raise") -> None:
        if how == "raise":
            raise RuntimeError("no engine")
        if how == "exit":
            sys.exit(0)
        if how == "recursion":
            deep()
        if how == "fork":
            os.fork()
        if how == "spec":
            self.spec = {"n_agents": 2}  # type: ignore[assignment]
        if how == "daemon":
            daemonise()
            raise RuntimeError("no engine")


class Speaking(HostCounting):
    """Its `spec` is a property that raises."""

    def __init__(self) -> None:
        pass

    @property
    def spec(self) -> Any:
        raise RuntimeError("not yet connected")


class Abstract(PythonEnv):
    """Has no methods at all."""


def not_annotated() -> Any:
    return Hostile()


NUMBER = 3
