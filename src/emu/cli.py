"""The `emu` command: a function per subcommand; those that concern studies live beside what they call."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import emu
from emu.config import Config
from emu.doctor import doctor
from emu.errors import EmuError, EnvError
from emu.structure import JsonObject
from emu.study.cli import study, sweep
from emu.study.looking import absolute, export, plot, table
from emu.study.report.cli import report

RunFolder = Annotated[Path, tyro.conf.Positional]
AsJson = Annotated[bool, tyro.conf.arg(name="json")]
out = Console()


@dataclasses.dataclass(frozen=True)
class TrainArgs:
    """Train a team. --algo and --env choose a preset; every setting below can be changed on top of it."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    run_dir: Path | None = None  # where the run goes; None: runs/ENV/ALGO-seedSEED
    quiet: bool = False  # no progress


def train_command(words: list[str]) -> int:
    """`emu train`: the preset of --algo and --env is the default that the other options change."""
    from emu.presets import preset

    default = preset(_peek(words, "--algo", Config.algo), _peek(words, "--env", Config.env))
    parsed = tyro.cli(TrainArgs, prog="emu train", args=words, default=TrainArgs(default))
    from emu.console import Progress
    from emu.run_folder import run_folder
    from emu.train import train

    folder = parsed.run_dir or run_folder(parsed.config)
    return _finish(folder, lambda: train(parsed.config, folder, Progress(quiet=parsed.quiet)))


def demo(out_folder: Annotated[Path, tyro.conf.arg(name="out")] = Path("demo")) -> int:
    """Train small teams within minutes; then a table, a picture of the curves, and a GIF of the best team.

    Args:
        out_folder: Where the pictures and the runs go.
    """
    from emu.demo import run_demo
    from emu.train import Stopped

    try:
        run_demo(out_folder)
    except Stopped as stopped:
        out.print(f"Stopped by {stopped}.")
        return 130 if str(stopped) == "SIGINT" else 143
    return 0


def resume(run: RunFolder, steps: int | None = None, quiet: bool = False) -> int:
    """Go on with a run that was stopped, killed, or is to be made longer.

    Args:
        run: The run's folder.
        steps: Train up to this many environment steps in all.
        quiet: No progress.
    """
    from emu.console import Progress
    from emu.train import resume as go_on

    return _finish(run, lambda: go_on(run, steps, Progress(quiet=quiet)))


def evaluate(run: RunFolder, episodes: int = 320, seed: int = 1, as_json: AsJson = False) -> int:
    """Test the best team of a run with greedy episodes.

    Args:
        run: The run's folder.
        episodes: How many episodes.
        seed: Seed of the episodes.
        as_json: Print JSON.
    """
    from emu.players import evaluate_team
    from emu.team import load_team

    _at_least_one("--episodes", episodes)
    team = load_team(run)
    result = evaluate_team(team, episodes, seed, 0).summary()
    values = {**result, "episodes": episodes, "trained_steps": team.best["step"]}
    _print_values(values, as_json, f"{team.config.algo} on {team.config.env}")
    return 0


def render(
    run: RunFolder,
    out_file: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
    tries: int = 8,
    fps: float = 5.0,
) -> int:
    """Make a GIF of a run's best team; no display is needed.

    Args:
        run: The run's folder.
        out_file: The GIF (default: team.gif in the run's folder).
        tries: Episodes to play; the first one won is shown, else the one with the highest return.
        fps: Pictures a second.
    """
    from emu.record import best_of, player, save_gif
    from emu.team import load_team

    _at_least_one("--tries", tries)
    if not 0.1 <= fps <= 100:
        raise EmuError(f"--fps must lie between 0.1 and 100, not {fps:g}.")
    team = load_team(run)
    recording = best_of(tries, player(team.env, team.learner, team.policy))
    path = save_gif(team.env, recording.states, out_file or run / "team.gif", fps)
    won = "won" if recording.won else "not won"
    out.print(f"{path}: {len(recording.states) - 1} steps, return {recording.total:.2f}, {won}", soft_wrap=True)
    return 0


def list_envs(as_json: AsJson = False) -> int:
    """List the environments.

    Args:
        as_json: Print JSON, with every environment's sizes.
    """
    from emu import envs

    def sizes(name: str) -> dict[str, Any]:
        try:
            return dataclasses.asdict(envs.make(name).spec)
        except EnvError as error:  # a package is missing: listed all the same
            return {"missing": str(error)}

    specs = {name: sizes(name) for name in envs.registered()}
    if as_json:
        print(json.dumps({n: {"summary": envs.registered()[n].summary, **spec} for n, spec in specs.items()}, indent=2))
        return 0
    table = Table(box=None)
    table.add_column("name", no_wrap=True)
    for title in ("agents", "actions", "obs", "state", "limit", "what it is"):
        table.add_column(title, overflow="fold")
    for name, spec in specs.items():
        columns = [str(spec.get(k, "")) for k in ("n_agents", "n_actions", "obs_dim", "state_dim", "episode_limit")]
        what = [envs.registered()[name].summary, *([spec["missing"]] if "missing" in spec else [])]
        table.add_row(f"[bold]{name}[/]", *columns, escape("\n".join(what)))
    out.print(table)
    out.print("\nOther people's, by a prefix (docs/envs/your_own.md):", highlight=False)
    for prefix, entry in envs.adapters().items():
        out.print(f"  [bold]{prefix}:...[/]  {entry.summary}", highlight=False)
    return 0


def list_algos(as_json: AsJson = False) -> int:
    """List the algorithms and how each differs from its neighbour.

    Args:
        as_json: Print JSON.
    """
    from emu.presets import ALGORITHMS

    if as_json:
        print(json.dumps({name: algorithm._asdict() for name, algorithm in ALGORITHMS.items()}, indent=2))
        return 0
    table = Table("name", "builds on", "what it is", "changes", box=None)
    for name, algorithm in ALGORITHMS.items():
        changes = ", ".join(f"{key}={value}" for key, value in algorithm.changes.items())
        table.add_row(f"[bold]{name}[/]", algorithm.base or "", algorithm.summary, changes)
    out.print(table)
    return 0


def check(env: Annotated[str, tyro.conf.Positional], env_args: JsonObject | None = None, episodes: int = 8) -> int:
    """Play random episodes in an environment and explain what breaks the contract.

    Args:
        env: A registered name.
        env_args: Arguments of the environment, as JSON.
        episodes: How many episodes.
    """
    from emu import envs
    from emu.envs.checker import check_env

    _at_least_one("--episodes", episodes)
    check_env(envs.make(env, **(env_args or {})), episodes)
    out.print(f"'{env}' keeps its contract ({episodes} random episodes).")
    return 0


def play(
    env: Annotated[str, tyro.conf.Positional],
    policy: str = "random",
    episodes: int = 256,
    seed: int = 0,
    env_args: JsonObject | None = None,
    gif: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Let a scripted player play: mean and spread of length and return, win rate; in battles, who is left.

    Args:
        env: A map of the SMAC-compatible simulator, e.g. smac/3s5z or smacv2/zerg_5_vs_5, or an environment in Python,
            e.g. football.
        policy: random; on the simulator's maps also nearest, weakest, kite, heuristic or heuristic_rest.
        episodes: How many episodes.
        seed: Seed of the episodes.
        env_args: Arguments of the environment, as JSON.
        gif: Also record one episode into this file.
        as_json: Print JSON.
    """
    from emu import envs
    from emu.envs.host import players
    from emu.record import save_gif

    game = envs.make(env, **(env_args or {}))
    if isinstance(game, envs.HostEnv):
        go, record = functools.partial(players.play, game), functools.partial(players.record, game)
    elif hasattr(game, "play"):
        go, record = game.play, game.record
    else:
        raise EmuError(f"'{env}' has no scripted players; the maps of the simulator have: emu play smac/3s5z")
    _print_values(go(policy, episodes, seed), as_json, f"{policy} on {env}")
    if gif is not None:
        path = save_gif(game, record(policy, seed), gif)
        Console(stderr=True).print(f"{path}", soft_wrap=True, highlight=False)
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    "demo": demo,
    "resume": resume,
    "evaluate": evaluate,
    "render": render,
    "plot": plot,
    "table": table,
    "absolute": absolute,
    "export": export,
    "study": study,
    "sweep": sweep,
    "report": report,
    "envs": list_envs,
    "algos": list_algos,
    "play": play,
    "check": check,
    "doctor": doctor,
}


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] in ([], ["-h"], ["--help"]):
            _print_help()
            return 0 if words else 2
        if words[0] in ("-V", "--version"):
            print(emu.__version__)
            return 0
        if words[0] == "train":
            return train_command(words[1:])
        if words[0] not in COMMANDS:
            from emu.errors import did_you_mean

            raise EmuError(f"No command is called '{words[0]}'. {did_you_mean(words[0], ['train', *COMMANDS])}")
        return tyro.cli(COMMANDS[words[0]], prog=f"emu {words[0]}", args=words[1:])
    except EmuError as error:
        Console(stderr=True).print(f"[bold red]error[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:  # before a run began or after it ended; in between, `train` saves
        Console(stderr=True).print("Interrupted.")
        return 130
    except BrokenPipeError:  # `emu envs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _print_help() -> None:
    table = Table(box=None, show_header=False)
    summary = (TrainArgs.__doc__ or "").split(". ")[0]
    for name, text in {"train": summary, **{n: f.__doc__ or "" for n, f in COMMANDS.items()}}.items():
        table.add_row(f"  emu {name}", text.splitlines()[0])
    out.print("[bold]emu[/]: cooperative multi-agent reinforcement learning with episodic memory\n")
    out.print(table)
    out.print("\nEvery command explains itself: emu train --help", highlight=False)


def _finish(folder: Path, go: Callable[[], dict[str, float]]) -> int:
    """Run, then say where it ended; a stopped run says how to go on."""
    from emu.train import Stopped

    try:
        summary = go()
    except Stopped as stopped:
        out.print(f"Stopped by {stopped}; everything is saved. Go on with: emu resume {folder}", soft_wrap=True)
        return 130 if str(stopped) == "SIGINT" else 143
    _print_values(summary, False, str(folder))
    return 0


def _at_least_one(option: str, value: int) -> None:
    if value < 1:
        raise EmuError(f"{option} must be at least 1, not {value}.")


def _print_values(values: dict[str, Any], as_json: bool, title: str) -> None:
    if as_json:
        print(json.dumps(values))
        return
    out.print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    table = Table(box=None, show_header=False)
    for name, value in values.items():
        table.add_row(name.replace("_", " "), f"{value:.3f}" if isinstance(value, float) else f"{value:,}")
    out.print(table)


def _peek(words: list[str], option: str, default: str) -> str:
    """The value of an option before the real parsing, which needs the preset that it names."""
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(option + "="):
            return word.partition("=")[2]
    return default


if __name__ == "__main__":
    sys.exit(main())
