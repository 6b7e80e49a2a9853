"""From a configuration to a learner: which mixer and which terms it is made of."""

from __future__ import annotations

from emu.config import Config
from emu.envs.base import EnvSpec
from emu.learners.base import Term
from emu.learners.value import ValueLearner
from emu.runtime import Devices


def build_terms(config: Config, spec: EnvSpec) -> list[Term]:
    """The terms a configuration switches on."""
    return []


def build_learner(config: Config, spec: EnvSpec, devices: Devices) -> ValueLearner:
    return ValueLearner(config, spec, devices, build_terms(config, spec))
