"""The absolute metric (Gorsane et al., 2022): the best team of a run, evaluated once more with ten times the episodes.

The evaluation that made a team the best of its run was lucky by selection; these episodes are fresh.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from emu.errors import EmuError
from emu.files import replace_json
from emu.run.folder import RunFolder

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
    replace_json(RunFolder(run).absolute, content)
    return content


def read_absolute(run: Path, missing_ok: bool = False) -> dict[str, Any]:
    """What `measure_absolute` wrote; empty if nothing and that is all right."""
    path = RunFolder(run).absolute
    if not path.exists():
        if missing_ok:
            return {}
        raise EmuError(f"{run} has no absolute metric yet. Measure it with `emu absolute {run}`.")
    try:
        content = json.loads(path.read_text())
        for name in VALUES:
            if len(content[name]) != content["episodes"] or not content["episodes"]:
                raise ValueError(f"'{name}' does not hold one value per episode")
            if not all(isinstance(value, int | float) for value in content[name]):
                raise ValueError(f"'{name}' does not hold numbers")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EmuError(f"{path} cannot be read ({error}). Measure it again with `emu absolute {run}`.") from error
    return content
