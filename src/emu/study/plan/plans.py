"""What a study consists of: planned runs, the folder each one lives in, and how far it has come.

A run is *finished* when its config.json says what was planned and its metrics hold the evaluation at the last step. A
folder in which training took place (it has `checkpoints/`) must also hold the last checkpoint, so that a process killed
between the last evaluation and the last save is not taken for done; results that were committed without checkpoints
count as they are.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from emu import envs
from emu.config import Config
from emu.config.presets import preset
from emu.errors import ConfigError, EmuError
from emu.files import parse_json, replace_json
from emu.run.folder import EVALUATION, RunFolder, is_run, read_config, read_meta
from emu.run.metrics import read_rows
from emu.study.analysis.runs import settings

# One device per run: what a run computes then does not depend on how many run side by side.
ALONE: dict[str, Any] = {"devices": 1, "tensorboard": False}
MOST_SEEDS = 10_000  # of one sweep
SPELLED = {"δ": "delta", "λ": "lambda", "β": "beta"}

Standing = Literal["finished", "unfinished", "new"]


class Planned(NamedTuple):
    """One run of a study."""

    env: str
    label: str  # what its curve is called
    algo: str
    seed: int
    overrides: dict[str, Any]

    @property
    def folder(self) -> Path:
        """Inside the study's folder."""
        return Path("runs") / path_name(self.env) / path_name(self.label) / f"seed{self.seed}"

    @property
    def log(self) -> Path:
        """Inside the study's folder: what the run's process printed."""
        return Path("logs") / path_name(self.env) / path_name(self.label) / f"seed{self.seed}.log"

    @property
    def name(self) -> str:
        return f"{self.env} {self.label} seed {self.seed}"

    def config(self) -> Config:
        return preset(self.algo, self.env, seed=self.seed, **self.overrides)

    def entry(self) -> dict[str, Any]:
        """Its line in study.json."""
        return {"folder": self.folder.as_posix(), **self._asdict()}


class Plan(NamedTuple):
    """A study or a sweep: what is to be run, and what it is called."""

    name: str
    title: str
    scale: str  # "paper", "laptop", or "" for a sweep
    runs: list[Planned]


def path_name(text: str) -> str:
    """A label or an environment's name as the name of a folder."""
    for symbol, word in SPELLED.items():
        text = text.replace(symbol, word)
    return re.sub(r"[^A-Za-z0-9_.=+-]+", "-", text)


def grid(
    envs: Sequence[str], algos: Sequence[str], seeds: Iterable[int], settings: dict[str, list[Any]]
) -> list[Planned]:
    """Every combination; a setting with several values is part of the label."""
    seeds, runs = list(seeds), []
    for env, algo in itertools.product(envs, algos):
        for values in itertools.product(*settings.values()):
            chosen = dict(zip(settings, values, strict=True))
            varied = [f"{key}={_show(value)}" for key, value in chosen.items() if len(settings[key]) > 1]
            label = " ".join([algo, *varied])
            runs += [Planned(env, label, algo, seed, {**ALONE, **chosen}) for seed in seeds]
    return runs


def parse_settings(words: Sequence[str]) -> dict[str, list[Any]]:
    """`learner.gamma=0.9,0.99` to {"learner.gamma": [0.9, 0.99]}; a value is JSON, or else a plain word."""
    settings: dict[str, list[Any]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key or not text:
            raise ConfigError(f"'--set {word}' is not a setting. Write key=value or key=value,value: learner.gamma=0.9")
        if key in settings:
            raise ConfigError(f"'{key}' is set twice. Write its values in one setting: {key}=A,B")
        if key in ("seed", "algo", "env"):
            raise ConfigError(f"'{key}' has an option of its own: --{key}s.")
        parts = [text] if text[0] in "{[" else text.split(",")
        settings[key] = [_value(part) for part in parts]
    return settings


def parse_seeds(text: str) -> list[int]:
    """`0-5`, `3` or `0,2,7-9`."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", part.strip())
        if not found:
            raise ConfigError(f"'{text[:60]}' is not a list of seeds. Write 0-5, 3 or 0,2,7-9.")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ConfigError(f"The seeds {part} run backwards. Write {last}-{first}.")
        if len(seeds) + last - first >= MOST_SEEDS:
            raise ConfigError(f"--seeds {text[:60]} asks for more than {MOST_SEEDS:,} seeds.")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# How far a run has come


def standing(folder: Path, config: Config) -> Standing:
    """Whether a run is finished, was begun, or is new. A folder that belongs to another run is refused by name."""
    if not is_run(folder):
        return "new"
    found = read_config(folder)
    if found != config:
        raise EmuError(
            f"{folder} holds a run with other settings ({differences(found, config)}). Choose another --out, "
            "or move that folder away."
        )
    return "finished" if is_finished(folder, config) else "unfinished"


def is_finished(folder: Path, config: Config) -> bool:
    """Whether the last evaluation is there and, where checkpoints are kept, the last checkpoint as well."""
    run = RunFolder(folder)
    if not run.metrics.exists():
        return False
    evaluated = max((row["step"] for row in read_rows(folder) if EVALUATION in row), default=-1)
    if not run.was_trained_here():
        return evaluated >= config.steps
    return min(evaluated, max(run.checkpoint_steps(), default=-1)) >= config.steps


def differences(found: Config, wanted: Config) -> str:
    """The settings in which two configurations differ: `steps 500 instead of 900`."""
    a, b = settings(found), settings(wanted)
    pairs = [f"{key} {a.get(key)!r} instead of {b.get(key)!r}" for key in {**b, **a} if a.get(key) != b.get(key)]
    return ", ".join(pairs[:3]) + (f" and {len(pairs) - 3} more" if len(pairs) > 3 else "")


def check_plan(plan: Plan, out: Path) -> dict[Path, Standing]:
    """How far every run of a plan has come, by its folder; whatever cannot be run is refused before anything starts."""
    folders = [run.folder for run in plan.runs]
    twice = {folder for folder in folders if folders.count(folder) > 1}
    if twice:
        raise EmuError(f"Two runs of '{plan.name}' would share {sorted(twice)[0]}. Say each value only once.")
    if not plan.runs:
        raise EmuError(f"'{plan.name}' has no runs: no seeds or no tasks are left.")
    versions: dict[str, str] = {}
    standings: dict[Path, Standing] = {}
    for run in plan.runs:
        config, folder = run.config(), out / run.folder
        task = f"{config.env} {config.env_args}"
        if task not in versions:  # an unknown task is refused here, not by every run
            versions[task] = envs.make(config.env, **config.env_args).spec.version
        standings[run.folder] = standing(folder, config)
        if standings[run.folder] != "new":
            check_version(folder, versions[task])
    return standings


def check_version(folder: Path, version: str) -> None:
    """Runs of two versions of an environment never mix; one that does not say what made it is taken as it is."""
    try:
        made = str(read_meta(folder)["env"]["version"])
    except (KeyError, TypeError):
        return
    if made != version:
        raise EmuError(
            f"{folder} was made with version {made} of its environment; this is version {version}. Their numbers are "
            "not comparable. Choose another --out, or move that folder away."
        )


# study.json


def write_study(plan: Plan, out: Path, command: str) -> None:
    """Write study.json in one step. Runs that it names already stay: a study may be run seed by seed."""
    path = out / "study.json"
    fresh = [run.entry() for run in plan.runs]
    content = {"name": plan.name, "title": plan.title, "scale": plan.scale, "command": command, "runs": fresh}
    if path.exists():
        content = _merged(path, content)
    replace_json(path, content, indent=1)


def _merged(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    try:
        old = json.loads(path.read_text())
        same = (old["name"], old["scale"]) == (content["name"], content["scale"])
        runs = {entry["folder"]: entry for entry in old["runs"]}
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise EmuError(f"{path} cannot be read ({error}). Move it away, or choose another --out.") from error
    if not same:
        was, now = (f"'{study['name']}' ({study['scale'] or 'sweep'})" for study in (old, content))
        raise EmuError(f"{path.parent} holds {was}, not {now}. Choose another --out.")
    runs |= {entry["folder"]: entry for entry in content["runs"]}
    return {**old, **content, "runs": list(runs.values())}
