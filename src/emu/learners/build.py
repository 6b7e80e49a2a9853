"""From a configuration to a learner with its terms: the registries of both, and what fits what."""

from __future__ import annotations

from emu.config import Config
from emu.config.build import settings_of
from emu.devices import Devices
from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.learners.base import Learner
from emu.learners.terms.base import Term
from emu.registry import Registry

LEARNERS: Registry[Learner] = Registry("learner", "emu.learners.base:Learner", "learner.kind")
LEARNERS.register("value", "emu.learners.value:ValueLearner", "Q-learning for teams: recurrent agents and a mixer")
LEARNERS.register("mappo", "emu.learners.mappo:MappoLearner", "policy gradients for teams")
LEARNERS.register("td3", "emu.learners.td3:TD3Learner", "one agent, continuous actions")
LEARNERS.register("dqn", "emu.learners.dqn:DQNLearner", "one agent, discrete actions")

# In the order in which they count: numbers depend on it.
TERMS: Registry[Term] = Registry("term", "emu.learners.terms.base:Term", "terms")
_TERMS = "emu.learners.terms"
TERMS.register("curiosity", f"{_TERMS}.curiosity:Curiosity", "curiosity.scale above 0")
TERMS.register("own_heads", f"{_TERMS}.diversity:OwnHeadPenalty", "agent.own_heads")
TERMS.register("diversity", f"{_TERMS}.diversity:Diversity", "diversity.beta above 0")
TERMS.register("elliptical", f"{_TERMS}.episodic:EllipticalBonus", "elliptical.scale above 0")
TERMS.register("incentive", f"{_TERMS}.episodic:EpisodicIncentive", "memory.use incentive")
TERMS.register("control", f"{_TERMS}.episodic:EpisodicControl", "memory.use control")


def build_terms(config: Config, spec: EnvSpec) -> list[Term]:
    """The terms a configuration switches on: this package's by their own settings, then those that `terms` names."""
    own = [TERMS.find(name).from_config(config, spec) for name in TERMS.names()]
    return [term for term in own if term] + [_term(name, given, config, spec) for name, given in config.terms.items()]


def _term(name: str, given: object, config: Config, spec: EnvSpec) -> Term:
    """A term from outside, with its settings."""
    if ":" not in name:
        TERMS.require(name)
        raise ConfigError(f"The term '{name}' is switched on by its own settings: {TERMS.summary(name)}.")
    if not isinstance(given, dict):
        raise ConfigError(f"'terms' gives every term its settings: {{\"{name}\": {{}}}}, not {given!r}.")
    found = TERMS.find(name)
    return found(config, spec, settings_of(found, given, f"terms.{name}"))


def build_learner(config: Config, spec: EnvSpec, devices: Devices) -> Learner:
    """The learner that `learner.kind` names, with its terms."""
    return LEARNERS.find(config.learner.kind)(config, spec, devices, build_terms(config, spec))
