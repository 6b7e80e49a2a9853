"""The commands about a trained team: `emu evaluate`, `emu render`, `emu export-team`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro

from emu.bounds import require_playable
from emu.cli.output import AsJson, print_values, require_at_least_one, say
from emu.errors import EmuError

RunFolder = Annotated[Path, tyro.conf.Positional]
WHICH = "best, last, or the step of a kept checkpoint"


def evaluate(
    run: RunFolder,
    episodes: int = 320,
    seed: int = 1,
    which: str = "best",
    as_json: AsJson = False,
    trust: bool = False,
) -> int:
    """Evaluate a team of a run with greedy episodes.

    Args:
        run: The run's folder, or that of an exported team.
        episodes: How many episodes.
        seed: Seed of the episodes.
        which: best, last, or the step of a kept checkpoint.
        as_json: Print JSON.
        trust: The run's settings may name code from outside this package, which is then run.
    """
    import emu

    require_playable(episodes, seed, dashes="--")
    team = emu.load(run, chosen(which), trust=trust)
    print_values(emu.evaluate(team, episodes, seed), as_json, f"{team.config.algo} on {team.config.env}")
    return 0


def render(
    run: RunFolder,
    out_file: Annotated[Path | None, tyro.conf.arg(name="out")] = None,
    tries: int = 8,
    fps: float | None = None,
    which: str = "best",
    trust: bool = False,
) -> int:
    """Make a GIF of a run's team; no display is needed.

    Args:
        run: The run's folder, or that of an exported team.
        out_file: The GIF (default: team.gif in the run's folder).
        tries: Episodes to play; the first one won is shown, else the one with the highest return.
        fps: Pictures a second (default: what the environment says, or 5).
        which: best, last, or the step of a kept checkpoint.
        trust: The run's settings may name code from outside this package, which is then run.
    """
    require_at_least_one("--tries", tries)
    if fps is not None and not 0.1 <= fps <= 100:
        raise EmuError(f"--fps must lie between 0.1 and 100, not {fps:g}.")
    import emu
    from emu.envs.pictures import pictured
    from emu.play.build import best_recorded
    from emu.play.gif import require_gif, save_gif
    from emu.run.folder import RunFolder as Files

    out = require_gif(out_file or Files(run).gif)
    team = emu.load(run, chosen(which), trust=trust)
    with pictured(team.env) as shown:
        episode = best_recorded(shown, team.learner, team.policy, tries)
        path = save_gif(shown, episode.frames or [], out, fps)
    won = (", won" if episode.won else ", not won") if team.env.spec.has_goal else ""
    say(f"{path}: {episode.length} steps, return {episode.total:.2f}{won}")
    return 0


def export_team(
    run: RunFolder,
    out_folder: Annotated[Path, tyro.conf.Positional],
    which: str = "best",
    onnx: bool = False,
    trust: bool = False,
) -> int:
    """Write a team into a folder that can be read without this package.

    It holds team.safetensors and team.json.

    Args:
        run: The run's folder.
        out_folder: Where the team goes.
        which: best, last, or the step of a kept checkpoint.
        onnx: Also write the agents' network as team.onnx (needs the package onnx).
        trust: The run's settings may name code from outside this package, which is then run.
    """
    import emu

    path = emu.export_team(emu.load(run, chosen(which), trust=trust), out_folder, onnx=onnx)
    say(f"{path}: {', '.join(sorted(file.name for file in path.iterdir()))}")
    return 0


def chosen(which: str) -> Any:
    """Which team: a word, or a step (as 50000 or 5e4)."""
    if which in ("best", "last"):
        return which
    from emu.cli.train_options import whole_number

    try:
        return whole_number(which)
    except ValueError:
        raise EmuError(f"--which must be {WHICH}, not {which!r}.") from None
