"""The Python API, as `import emu` offers it: train, resume, load, evaluate, make_env; runs, teams and callbacks.

    run = emu.train("emu_qplex", "smac/3m", steps=150_000, seed=1, **{"learner.gamma": 0.98})
    team = emu.load(run)
    print(emu.evaluate(team, episodes=320))

Everything a command of `emu` does with one run is done here; the commands parse, call, and print.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emu import envs
from emu.bounds import require_playable
from emu.config import Config
from emu.config.presets import preset
from emu.errors import EmuError
from emu.play.build import evaluate_team
from emu.run.exported import export_team as write_team
from emu.run.folder import read_config, run_folder
from emu.run.metrics import last_evaluation, read_rows
from emu.run.team import Team, Which, load_team
from emu.training import session
from emu.training.callbacks import Callback, Callbacks
from emu.training.progress import Progress

if TYPE_CHECKING:
    import pandas

__all__ = ["Callback", "Run", "Team", "evaluate", "export_team", "load", "make_env", "resume", "train"]

Folder = str | os.PathLike[str]  # of a run or a team; a `Run` is one, too


class Run:
    """A run's folder: its settings and what it wrote down. `emu.Run("runs/…")` opens one that exists.

    What `train` and `resume` return is trusted: the code from outside that it names was run in this process already.
    """

    def __init__(self, path: Folder, trusted: bool = False) -> None:
        self.path, self.trusted = Path(path), trusted
        read_config(self.path)  # refuses what is no run

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def config(self) -> Config:
        """All settings."""
        return read_config(self.path)

    def metrics(self) -> dict[str, np.ndarray]:
        """Every value the run wrote, by name: arrays of equal length, an entry for every row of `metrics.jsonl`.

        Rows of training and of evaluations have different values; what a row does not have is NaN.
        """
        rows = read_rows(self.path)
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: np.array([row.get(name, np.nan) for row in rows], np.float64) for name in names}
        return {"step": np.array([row["step"] for row in rows], np.int64)} | {
            name: column for name, column in columns.items() if name != "step"
        }

    def frame(self) -> pandas.DataFrame:
        """The metrics as a pandas table; needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise EmuError(
                "run.frame() needs pandas: pip install pandas. run.metrics() gives the same as arrays."
            ) from error
        return pandas.DataFrame(self.metrics())

    def last_evaluation(self) -> dict[str, float]:
        """The values of the last evaluation; empty if there was none."""
        return last_evaluation(self.path)


def train(
    algo: str,
    env: str,
    *,
    steps: int | None = None,
    seed: int = 0,
    folder: Folder | None = None,
    callbacks: Iterable[Any] = (),
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Train a team and return its run.

    Args:
        algo: An algorithm: `emu algos` lists them. Variants follow a plus: "emu_qplex+fast".
        env: An environment: `emu envs` lists them; yours is "my_module:MyEnv".
        steps: Environment steps in all; None: the preset's.
        seed: Of everything random.
        folder: Where the run goes, which must be new; None: runs/ENV/ALGO-seedSEED.
        callbacks: Objects with `on_chunk(step, metrics)`, `on_evaluation(step, metrics)` or both. If one returns
            true, the run is saved and ends; `resume` goes on with it.
        quiet: No progress on the screen (standard error).
        **settings: Any other setting by its dotted name, `**{"learner.gamma": 0.98}`, or as `learner__gamma=0.98`.

    Ctrl-C saves the run and raises `KeyboardInterrupt`.
    """
    given = {"seed": seed} | ({} if steps is None else {"steps": steps}) | settings
    config = preset(algo, env, **given)
    path = run_folder(config) if folder is None else Path(folder)
    hooks = Callbacks(callbacks)
    return _run(path, lambda: session.train(config, path, Progress(quiet=quiet), callbacks=hooks))


def resume(
    run: Folder,
    steps: int | None = None,
    *,
    callbacks: Iterable[Any] = (),
    quiet: bool = False,
    trust: bool = False,
    restart: bool = False,
) -> Run:
    """Go on with a run that was stopped or killed, as if it never had been.

    Args:
        run: A run or its folder.
        steps: Train up to this many environment steps in all; None: as many as were planned.
        callbacks: As for `train`.
        quiet: No progress on the screen.
        trust: The run's settings may name code from outside this package, which is then run.
        restart: Begin anew where no checkpoint is left; what the run wrote is removed.
    """
    trust = trust or (isinstance(run, Run) and run.trusted)
    path, hooks = Path(run), Callbacks(callbacks)
    return _run(path, lambda: session.resume(path, steps, Progress(quiet=quiet), trust, restart, hooks))


def load(run: Folder, which: Which = "best", *, trust: bool = False) -> Team:
    """A trained team.

    Args:
        run: A run, its folder, or a folder that `emu export-team` wrote.
        which: "best": of the evaluation with the highest win rate, then return; "last": of the newest checkpoint; a
            number: of the checkpoint at that environment step, while it is kept.
        trust: The run's settings may name code from outside this package, which is then run.
    """
    return load_team(Path(run), which, trust or (isinstance(run, Run) and run.trusted))


def evaluate(team: Team | Folder, episodes: int = 320, seed: int = 1, *, trust: bool = False) -> dict[str, float]:
    """Play greedy episodes and return their mean values, by the names that the metrics have for them.

    Args:
        team: A team, or whatever `load` takes.
        episodes: How many.
        seed: Decides which episodes are played.
        trust: As for `load`.
    """
    require_playable(episodes, seed)
    team = team if isinstance(team, Team) else load(team, trust=trust)
    values = evaluate_team(team, episodes, seed, 0).summary()
    if not team.env.spec.has_goal:
        del values["test_win_rate"]
    return {**values, "episodes": episodes, "trained_steps": team.step}


def export_team(team: Team | Folder, folder: Folder, *, onnx: bool = False, trust: bool = False) -> Path:
    """Write a team, and nothing else of its run, into a folder: `team.safetensors` and `team.json`.

    Args:
        team: A team, or whatever `load` takes.
        folder: Where it goes: new, empty, or with an exported team, which is replaced.
        onnx: Also write the network as `team.onnx`; needs the package onnx.
        trust: As for `load`.
    """
    return write_team(team if isinstance(team, Team) else load(team, trust=trust), Path(folder), onnx)


def make_env(name: str, **arguments: Any) -> Any:
    """An environment by name: a compiled one (`emu.envs.Env`) or one in plain Python (`emu.envs.PythonEnv`)."""
    return envs.make(name, **arguments)


def _run(path: Path, go: Callable[[], Any]) -> Run:
    """Train; a run that a callback ended is done, one that a signal ended is an interruption."""
    try:
        go()
    except session.Stopped as stopped:
        if str(stopped) == "SIGINT":
            raise KeyboardInterrupt(f"{path} is saved; emu.resume goes on with it") from stopped
        if str(stopped) != session.BY_CALLBACK:
            raise SystemExit(f"Stopped by {stopped}; {path} is saved.") from stopped
    return Run(path, trusted=True)
