"""The absolute metric (Gorsane et al., 2022): the best team of a run, evaluated once more with ten times the episodes.

The evaluation that made a team the best of its run was lucky by selection; these episodes are fresh.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emu.errors import EmuError
from emu.files import quoted, replace_json, writing
from emu.run.folder import RunFolder
from emu.run.record import Record

VALUES = ("win_rate", "return", "length")  # one number per episode each
FACTOR = 10
EVALUATION = 10**9  # a number that no evaluation in training has, so that its episodes are new


def measure_absolute(run: Path, trust: bool = False) -> dict[str, Any]:
    """Evaluate the best team of a run in ten times `eval.episodes` and write the episodes to absolute.json."""
    from emu.play.build import evaluate_team
    from emu.run.team import load_team

    team = load_team(run, trust=trust)
    episodes = FACTOR * team.config.eval.episodes
    result = evaluate_team(team, episodes, team.config.seed, EVALUATION)
    content = {
        "step": team.step,
        "episodes": episodes,
        "win_rate": result.won.astype(int).tolist(),
        "return": [round(value, 6) for value in result.total.astype(float).tolist()],
        "length": result.length.astype(int).tolist(),
    }
    with writing(RunFolder(run).absolute, "May you write there?"):
        replace_json(RunFolder(run).absolute, content)
    return content


def read_absolute(run: Path, missing_ok: bool = False) -> dict[str, Any]:
    """What `measure_absolute` wrote; empty if nothing and that is all right."""
    path = RunFolder(run).absolute
    if not path.exists():
        if missing_ok:
            return {}
        raise EmuError(f"{run} has no absolute metric yet. Measure it with `emu absolute {quoted(run)}`.")
    try:
        record = Record.read(path)
        episodes = record.whole("episodes", least=1)
        values = {name: record.numbers(name, episodes) for name in VALUES}
        return {"step": record.whole("step"), "episodes": episodes, **values}
    except EmuError as error:
        raise EmuError(f"{error} Measure it again with `emu absolute --again {quoted(run)}`.") from error
