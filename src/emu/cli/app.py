"""The `emu` command: a function per subcommand; those that concern studies live beside what they call."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import emu
from emu.cli.analysis import absolute, export, plot, table
from emu.cli.doctor import doctor
from emu.cli.report import report
from emu.cli.study import study, sweep
from emu.config.build import JsonObject
from emu.errors import EmuError, EnvError

Run = Annotated[Path, tyro.conf.Positional]
AsJson = Annotated[bool, tyro.conf.arg(name="json")]
out = Console()


def train_command(words: list[str]) -> int:
    """`emu train`: the preset of --algo and --env is the default that the other options change."""
    from emu.cli.train_options import parse_train

    parsed = parse_train(words)
    from emu.run.folder import run_folder
    from emu.training.progress import Progress
    from emu.training.session import train

    folder = parsed.run_dir or run_folder(parsed.settings)
    return _finish(folder, lambda: train(parsed.settings, folder, Progress(quiet=parsed.quiet)))


def demo(out_folder: Annotated[Path, tyro.conf.arg(name="out")] = Path("demo")) -> int:
    """Train small teams within minutes; then a table, a picture of the curves, and a GIF of the best team.

    Args:
        out_folder: Where the pictures and the runs go.
    """
    from emu.cli.demo import run_demo
    from emu.training.session import Stopped

    try:
        run_demo(out_folder)
    except Stopped as stopped:
        out.print(f"Stopped by {stopped}.")
        return _status(stopped)
    return 0


def resume(
    run: Run,
    steps: int | None = None,
    quiet: bool = False,
    trust: bool = False,
    restart: bool = False,
) -> int:
    """Go on with a run that was stopped, killed, or is to be made longer.

    Args:
        run: The run's folder.
        steps: Train up to this many environment steps in all.
        quiet: No progress.
        trust: The run's settings may name code from outside this package, which is then run.
        restart: Begin anew where no checkpoint is left; what the run wrote is removed.
    """
    from emu.training.progress import Progress
    from emu.training.session import resume as go_on

    return _finish(run, lambda: go_on(run, steps, Progress(quiet=quiet), trust, restart))


def evaluate(run: Run, episodes: int = 320, seed: int = 1, as_json: AsJson = False, trust: bool = False) -> int:
    """Test the best team of a run with greedy episodes.

    Args:
        run: The run's folder.
        episodes: How many episodes.
        seed: Seed of the episodes.
        as_json: Print JSON.
        trust: The run's settings may name code from outside this package, which is then run.
    """
    from emu.play.build import evaluate_team
    from emu.run.team import load_team

    _at_least_one("--episodes", episodes)
    team = load_team(run, trust)
    result = evaluate_team(team, episodes, seed, 0).summary()
    values = {**result, "episodes": episodes, "trained_steps": team.step}
    _print_values(values, as_json, f"{team.config.algo} on {team.config.env}")
    return 0


def render(
    run: Run,
    out_file: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
    tries: int = 8,
    fps: float = 5.0,
    trust: bool = False,
) -> int:
    """Make a GIF of a run's best team; no display is needed.

    Args:
        run: The run's folder.
        out_file: The GIF (default: team.gif in the run's folder).
        tries: Episodes to play; the first one won is shown, else the one with the highest return.
        fps: Pictures a second.
        trust: The run's settings may name code from outside this package, which is then run.
    """
    from emu.play.build import recorder
    from emu.play.gif import best_of, save_gif
    from emu.run.folder import RunFolder as Files
    from emu.run.team import load_team

    _at_least_one("--tries", tries)
    if not 0.1 <= fps <= 100:
        raise EmuError(f"--fps must lie between 0.1 and 100, not {fps:g}.")
    team = load_team(run, trust)
    episode = best_of(tries, recorder(team.env, team.learner, team.policy))
    path = save_gif(team.env, episode.frames or [], out_file or Files(run).gif, fps)
    won = "won" if episode.won else "not won"
    out.print(escape(f"{path}: {episode.length} steps, return {episode.total:.2f}, {won}"), soft_wrap=True)
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
    from emu.config.presets import ALGORITHMS, VARIANTS

    if as_json:
        print(json.dumps({name: algorithm._asdict() for name, algorithm in ALGORITHMS.items()}, indent=2))
        return 0
    table = Table("name", "builds on", "what it is", "changes", box=None)
    for name, algorithm in ALGORITHMS.items():
        changes = ", ".join(f"{key}={value}" for key, value in algorithm.changes.items())
        table.add_row(f"[bold]{name}[/]", algorithm.base or "", algorithm.summary, changes)
    out.print(table)
    out.print("\nVariants, behind any name (emu_qplex+fast):", highlight=False)
    for name, variant in VARIANTS.items():
        out.print(f"  [bold]+{name}[/]  {variant.summary}", highlight=False)
    return 0


def check(env: Annotated[str, tyro.conf.Positional], env_args: JsonObject | None = None, episodes: int = 8) -> int:
    """Play random episodes in an environment and explain what breaks the contract.

    Args:
        env: A registered name.
        env_args: Arguments of the environment, as JSON.
        episodes: How many episodes.
    """
    from emu import envs
    from emu.envs.check import check_env

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
        env: Any environment, e.g. smac/3s5z, football/3_vs_1_with_keeper or gymnasium:Pendulum-v1.
        policy: random; on the simulator's maps also nearest, weakest or kite.
        episodes: How many episodes.
        seed: Seed of the episodes.
        env_args: Arguments of the environment, as JSON.
        gif: Also record one episode into this file.
        as_json: Print JSON.
    """
    from emu import envs
    from emu.play.build import play_scripted
    from emu.play.episode import summary_of
    from emu.play.gif import save_gif

    _at_least_one("--episodes", episodes)
    game = envs.make(env, **(env_args or {}))
    _print_values(summary_of(play_scripted(game, policy, episodes, seed)), as_json, f"{policy} on {env}")
    if gif is not None:
        (episode,) = play_scripted(game, policy, 1, seed, frames=True)
        path = save_gif(game, episode.frames or [], gif)
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
    warnings.showwarning = _show_warning
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
        from emu.cli.train_options import whole_numbers_with_exponents

        numbers = whole_numbers_with_exponents()
        return tyro.cli(COMMANDS[words[0]], prog=f"emu {words[0]}", args=words[1:], registry=numbers)
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
    for name, text in {"train": "Train a team", **{n: f.__doc__ or "" for n, f in COMMANDS.items()}}.items():
        table.add_row(f"  emu {name}", text.splitlines()[0])
    out.print("[bold]emu[/]: cooperative multi-agent reinforcement learning with episodic memory\n")
    out.print(table)
    out.print("\nEvery command explains itself: emu train --help", highlight=False)


def _finish(folder: Path, go: Callable[[], dict[str, float]]) -> int:
    """Run, then say where it ended; a stopped run says how to go on."""
    from emu.run.folder import read_config
    from emu.run.trust import outside
    from emu.training.session import Stopped

    try:
        summary = go()
    except Stopped as stopped:
        command = f"emu resume {shlex.quote(str(folder))}{' --trust' if outside(read_config(folder)) else ''}"
        _say_if_anyone_listens(f"Stopped by {stopped}; everything is saved. Go on with: {command}")
        return _status(stopped)
    _print_values(summary, False, str(folder))
    return 0


def _status(stopped: Exception) -> int:
    """What a shell reports of a process that a signal ended."""
    return 128 + signal.Signals[str(stopped)].value


def _say_if_anyone_listens(text: str) -> None:
    """The pipe or terminal may be what was closed."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    """Warnings of the package in its own manner, without the line of code that gave them."""
    Console(stderr=True).print(f"[yellow]warning[/] {escape(str(message))}", highlight=False, soft_wrap=True)


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


if __name__ == "__main__":
    sys.exit(main())
