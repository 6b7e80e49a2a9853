"""From a configuration to the pieces of a run: its learner and terms, its replay, its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.config import Config
from emu.devices import Devices
from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.learners.base import Term
from emu.learners.dqn import DQNLearner
from emu.learners.mappo import MappoLearner
from emu.learners.td3 import TD3Learner
from emu.learners.terms.curiosity import Curiosity
from emu.learners.terms.diversity import Diversity, OwnHeadPenalty
from emu.learners.terms.episodic import EllipticalBonus, EpisodicControl, EpisodicIncentive
from emu.learners.value import ValueLearner
from emu.replay.episodes import Replay
from emu.replay.steps import Transitions

if TYPE_CHECKING:
    from pathlib import Path

    from emu.envs.spec import Env
    from emu.learners.base import Learner
    from emu.train.memory import TrainingMemory
    from emu.train.snapshots import Photographer


def build_terms(config: Config, spec: EnvSpec) -> list[Term]:
    """The terms a configuration switches on."""
    memory, gamma, terms = config.memory, config.learner.gamma, []
    if config.curiosity.scale > 0:
        terms.append(Curiosity(config, spec))
    if config.agent.own_heads and config.diversity.own_head_penalty > 0:
        terms.append(OwnHeadPenalty(config.diversity.own_head_penalty))
    if config.diversity.beta > 0:
        terms.append(Diversity(config, spec))
    if config.elliptical.scale > 0:
        terms.append(EllipticalBonus(config.elliptical.scale, config.elliptical.ridge))
    if memory.use == "incentive":
        terms.append(EpisodicIncentive(gamma, memory.optimistic))
    if memory.use == "control":
        terms.append(EpisodicControl(gamma, memory.control_weight))
    return terms


def build_replay(config: Config, spec: EnvSpec) -> Replay | Transitions:
    """What keeps episodes for learning, and draws batches of what the learner learns from."""
    kept, max_bytes = config.replay, int(config.replay.gigabytes * 1e9)
    if kept.unit == "steps":
        return Transitions(spec, kept.steps, max_bytes)
    return Replay(spec, kept.episodes, max_bytes, config.learner.length_buckets)


def build_keeper(config: Config, spec: EnvSpec) -> TrainingMemory | None:
    """The episodic memory, where any term reads from it; imported only then, for numba takes a while to load."""
    if config.memory.use == "none" and config.elliptical.scale == 0:
        return None
    from emu.train.memory import TrainingMemory

    return TrainingMemory(config, spec)


def build_photographer(
    keeper: TrainingMemory | None, run: Path, env: Env, learner: Learner, seed: int
) -> Photographer | None:
    """What takes pictures of the memory, where there is one."""
    if keeper is None:
        return None
    from emu.train.snapshots import Photographer

    return Photographer(run, env, learner, seed)


Learners = ValueLearner | MappoLearner | TD3Learner | DQNLearner


def build_learner(config: Config, spec: EnvSpec, devices: Devices) -> Learners:
    terms, kind = build_terms(config, spec), config.learner.kind
    if kind in ("td3", "dqn"):
        _refuse([term for term in terms if not isinstance(term, EpisodicIncentive | EpisodicControl)], config.algo)
    if kind == "td3":
        return TD3Learner(config, spec, devices, terms)
    if spec.action_dim:
        raise ConfigError(f"{config.algo} chooses among actions; those of '{spec.name}' are continuous. Try td3.")
    if kind == "dqn":
        return DQNLearner(config, spec, devices, terms)
    if kind == "mappo":
        _refuse(terms, config.algo)
        return MappoLearner(config, spec, devices)
    return ValueLearner(config, spec, devices, terms)


def _refuse(terms: list[Term], algo: str) -> None:
    if terms:
        names = ", ".join(term.name for term in terms)
        raise ConfigError(f"{algo} has no use for these terms of value learners: switch off {names}.")
