"""Which settings may change when a run is resumed: those in its config.json against those in its checkpoint.

    free     changes nothing that the run computes
    noted    allowed, but from here on the run is another one: said in the log, recorded in meta.json
    fixed    refused: the checkpoint does not fit it, or the run would no longer be what its name says

A setting that no rule names is fixed.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from emu.errors import ConfigError

Verdict = Literal["free", "noted", "fixed"]

# The longest rule that names a setting or a group it belongs to decides.
RULES: dict[str, Verdict] = {
    # How long and where a run goes on, and what it leaves behind.
    "steps": "free",
    "tensorboard": "free",
    "loggers": "free",
    "checkpoint": "free",
    "memory.snapshot_interval": "free",
    "rollout.workers": "free",
    "rollout.where": "free",
    "rollout.cluster": "free",
    "rollout.timeout": "free",
    "rollout.max_failures": "free",
    # Hyper-parameters that shape nothing that is stored. Another number of devices adds up in another order.
    "devices": "noted",
    "log_interval": "noted",
    "eval": "noted",
    "rollout": "noted",
    "replay": "noted",
    "learner": "noted",
    "mixer.attention_regulariser": "noted",
    "dqn.huber": "noted",
    "dqn.target_interval": "noted",
    "ppo": "noted",
    "td3": "noted",
    "memory": "noted",
    "curiosity": "noted",
    "diversity": "noted",
    "elliptical": "noted",
    # What a run is, and the shapes of what is stored.
    "seed": "fixed",
    "algo": "fixed",
    "env": "fixed",
    "env_args": "fixed",
    "agent": "fixed",
    "mixer": "fixed",
    "terms": "fixed",
    "rollout.envs": "fixed",
    "rollout.chunk": "fixed",
    "replay.unit": "fixed",
    "learner.kind": "fixed",
    "learner.settings": "fixed",
    "dqn.hidden": "fixed",
    "ppo.critic": "fixed",
    "td3.hidden": "fixed",
    "memory.use": "fixed",
    "memory.key_dim": "fixed",
    "memory.metric": "fixed",
    "memory.half_precision": "fixed",
    "memory.embedder.kind": "fixed",
    "memory.embedder.settings": "fixed",
    "diversity.hidden": "fixed",
}


class Change(NamedTuple):
    """One setting whose value differs."""

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} {self.before!r} -> {self.now!r}"


def verdict(name: str) -> Verdict:
    """What a change of this setting means."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if rule := RULES.get(".".join(parts[:length])):
            return rule
    return "fixed"


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[Change]:
    """The settings in which two configurations, as plain dictionaries, differ.

    A setting that only one of them has belongs to another version of the package and is left out, unless it lies in a
    group of the user's own making such as `env_args`.
    """
    return [change for change in _differences(before, now, "") if change.before != change.now]


def allowed_changes(before: dict[str, Any], now: dict[str, Any]) -> list[Change]:
    """The changes worth noting; one that is not allowed is refused by name."""
    found = changes(before, now)
    refused = [change for change in found if verdict(change.name) == "fixed"]
    if refused:
        raise ConfigError(
            f"The checkpoint was made with other settings: {', '.join(map(str, refused))}. These cannot change within "
            "a run. Put config.json back as it was to resume, or start a new run; nothing was touched."
        )
    return [change for change in found if verdict(change.name) == "noted"]


def _differences(before: dict[str, Any], now: dict[str, Any], where: str) -> list[Change]:
    found = []
    for key in {**before, **now}:
        a, b, name = before.get(key), now.get(key), f"{where}{key}"
        if isinstance(a, dict) and isinstance(b, dict) and name != "env_args":
            found += _differences(a, b, f"{name}.")
        elif key in before and key in now:
            found.append(Change(name, a, b))
    return found
