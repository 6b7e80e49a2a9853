"""The words behind `emu train`: a preset or a file of settings, changed by options.

`--algo emu --env smac/3m` chooses a preset, `--config FILE` a run's config.json (or YAML); the other options change it.
Options that other frameworks call by another name are hinted at.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from emu.config import Config, replace
from emu.config.presets import complete, preset
from emu.errors import ConfigError
from emu.files import parse_json, reason, require_possible

# What other frameworks call an option, and what it is called here.
USUAL_NAMES = {
    "--alg": "--algo",
    "--algorithm": "--algo",
    "--map": "--env",
    "--map-name": "--env",
    "--scenario": "--env",
    "--task": "--env",
    "--lr": "--learner.learning-rate",
    "--learning-rate": "--learner.learning-rate",
    "--gamma": "--learner.gamma",
    "--discount": "--learner.gamma",
    "--batch-size": "--learner.batch-size",
    "--td-lambda": "--learner.td-lambda",
    "--grad-norm-clip": "--learner.max-grad-norm",
    "--max-grad-norm": "--learner.max-grad-norm",
    "--target-update-interval": "--learner.target-interval",
    "--double-q": "--learner.double-q",
    "--t-max": "--steps",
    "--max-steps": "--steps",
    "--num-steps": "--steps",
    "--timesteps": "--steps",
    "--total-steps": "--steps",
    "--total-timesteps": "--steps",
    "--num-envs": "--rollout.envs",
    "--n-envs": "--rollout.envs",
    "--batch-size-run": "--rollout.envs",
    "--num-workers": "--rollout.workers",
    "--epsilon-start": "--rollout.epsilon-start",
    "--epsilon-finish": "--rollout.epsilon-end",
    "--epsilon-anneal-time": "--rollout.epsilon-steps",
    "--buffer-size": "--replay.episodes",
    "--mixer": "--mixer.kind",
    "--hidden-dim": "--agent.hidden",
    "--rnn-hidden-dim": "--agent.hidden",
    "--radius": "--memory.radius",
    "--delta": "--memory.radius",
    "--capacity": "--memory.capacity",
    "--embedder": "--memory.embedder.kind",
    "--t-emb": "--memory.embedder.interval",
    "--test-interval": "--eval.interval",
    "--eval-interval": "--eval.interval",
    "--test-nepisode": "--eval.episodes",
    "--eval-episodes": "--eval.episodes",
    "--save-interval": "--checkpoint.interval",
    "--out": "--run-dir",
    "--output": "--run-dir",
    "--log-dir": "--run-dir",
}


@dataclasses.dataclass(frozen=True)
class TrainArgs:
    """Train a team.

    --algo and --env choose a preset; all settings below can be changed on top.
    """

    settings: Annotated[Config, tyro.conf.arg(name="")]
    config: Path | None = None  # instead of a preset: a run's config.json, or settings as JSON or YAML
    rules: Literal["default", "paper", "authors"] = "default"  # the paper's t_emb, or all rules of the authors' code
    fast: bool = False  # λ-returns of 0.6 and no curiosity; the curve is called ALGO+fast
    run_dir: Path | None = None  # where the run goes; None: runs/ENV/ALGO-seedSEED
    quiet: bool = False  # nothing on the screen but errors


def parse_train(words: list[str]) -> TrainArgs:
    _hint_at_usual_names(words)
    default = _starting_point(words)
    parsed = tyro.cli(TrainArgs, prog="emu train", args=words, default=TrainArgs(default), registry=our_words())
    # the name with its variants, where --algo says it in another way
    return dataclasses.replace(parsed, settings=replace(parsed.settings, {"algo": default.algo}))


def _starting_point(words: list[str]) -> Config:
    """The settings that the options on the command line change."""
    file, rules = peek(words, "--config"), peek(words, "--rules")
    variants = [*([rules] if rules in ("paper", "authors") else []), *(["fast"] if "--fast" in words else [])]
    algo, env = peek(words, "--algo"), peek(words, "--env")
    if file is None:
        default = (Config.algo if algo is None else algo, Config.env if env is None else env)
        return preset("+".join([default[0], *variants]), default[1])
    if algo or variants:
        raise ConfigError("--config names the algorithm: leave out --algo, --rules and --fast, or change the file.")
    return complete(read_settings(Path(file)))


def read_settings(path: Path) -> dict[str, Any]:
    """Settings in JSON, or in YAML if the file's name says so."""
    try:
        text = require_possible(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} cannot be read: {reason(error)}.") from error
    try:
        if path.suffix in (".yaml", ".yml"):
            import yaml

            try:
                return yaml.safe_load(text)
            except (yaml.YAMLError, RecursionError) as error:
                raise ValueError(error) from error
        return parse_json(text)
    except ValueError as error:
        kind = "YAML" if path.suffix in (".yaml", ".yml") else "JSON"
        raise ConfigError(f"--config {path} is not {kind}: {error}") from error


def _hint_at_usual_names(words: list[str]) -> None:
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if name in USUAL_NAMES:
            raise ConfigError(f"`emu train` has no option {word.partition('=')[0]}: it is called {USUAL_NAMES[name]}.")


def peek(words: list[str], option: str) -> str | None:
    """The value of an option before the real parsing, which needs what it names."""
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(option + "="):
            return word.partition("=")[2]
    return None


def our_words() -> ConstructorRegistry:
    """Every whole number may be written as 1e6, too; every path must be one that a file system takes."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def paths(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Path] | None:
        if info.type is not Path:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="PATH",
            instance_from_str=lambda words: require_possible(Path(words[0])),
            is_instance=lambda value: isinstance(value, Path),
            str_from_instance=lambda value: [str(value)],
        )

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
        if info.type is not int:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda words: whole_number(words[0]),
            is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not math.isfinite(value) or not value.is_integer():
            raise ValueError(f"{text} is not a whole number") from None
        return int(value)
