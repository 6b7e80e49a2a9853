"""Names of the features, as SMACv2 lists them, and its visibility matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.envs.smacv2.features import Layout


def ally_features(shape: Layout) -> list[str]:
    """Of one agent in the state."""
    names = ["health", "energy/cooldown", "rel_x", "rel_y", *(["shield"] * shape.shields)]
    names += ["fov_x", "fov_y"] if shape.options.conic_fov else []
    names += ["attack_probability"] if shape.capabilities.attack else []
    names += ["total_health"] if shape.capabilities.health else []
    return names + _bits(shape)


def enemy_features(shape: Layout) -> list[str]:
    """Of one enemy in the state."""
    return ["health", "rel_x", "rel_y", *(["shield"] * shape.shields), *_bits(shape)]


def _bits(shape: Layout) -> list[str]:
    return [f"type_{bit}" for bit in range(shape.type_bits)]


def state(shape: Layout) -> list[str]:
    """Of the whole state."""
    names = []
    for i in range(shape.n_allies):
        names += [f"ally_{name}_{i}" for name in ("health", "cooldown", "relative_x", "relative_y")]
        names += [f"ally_shield_{i}"] * shape.shields + _extras(shape, "ally_", f"_{i}")
        names += [f"ally_fov_{axis}_{i}" for axis in "xy" if shape.options.conic_fov]
        names += _type_names(shape, f"ally_unit_type_{i}")
    for e in range(shape.n_enemies):
        names += [f"enemy_{name}_{e}" for name in ("health", "relative_x", "relative_y")]
        names += [f"enemy_shield_{e}"] * shape.shields + _type_names(shape, f"enemy_unit_type_{e}")
    if shape.options.state_last_action:
        actions = range(shape.n_actions)
        names += [f"ally_last_action_{i}_action_{a}" for i in range(shape.n_allies) for a in actions]
    return names + ["timestep"] * shape.options.state_timestep_number


def observation(shape: Layout) -> list[str]:
    """Of agent 0's observation."""
    o, time = shape.options, ["timestep"] * shape.options.obs_timestep_number
    if not o.obs_starcraft:
        return time
    names = [f"move_action_{way}" for way in ("north", "south", "east", "west")]
    for e in range(shape.n_enemies):
        names += [f"enemy_{name}_{e}" for name in ("shootable", "distance", "relative_x", "relative_y")]
        names += _health_names(shape, "enemy_", f"_{e}") * o.obs_all_health
        names += _type_names(shape, f"enemy_unit_type_{e}")
    for i in range(1, shape.n_allies):
        names += [f"ally_{name}_{i}" for name in ("visible", "distance", "relative_x", "relative_y")]
        names += _health_names(shape, "ally_", f"_{i}") * o.obs_all_health + _extras(shape, "ally_", f"_{i}")
        names += _type_names(shape, f"ally_unit_type_{i}")
        names += [f"ally_last_action_{i}_action_{a}" for a in range(shape.n_actions) if o.obs_last_action]
    names += _health_names(shape, "own_", "") * o.obs_own_health + _extras(shape, "own_", "")
    names += ["own_pos_x", "own_pos_y"] * o.obs_own_pos + ["own_fov_x", "own_fov_y"] * o.conic_fov
    return names + _type_names(shape, "own_unit_type") + time


def _health_names(shape: Layout, before: str, after: str) -> list[str]:
    return [f"{before}health{after}", *([f"{before}shield{after}"] * shape.shields)]


def _extras(shape: Layout, before: str, after: str) -> list[str]:
    c = shape.capabilities
    return [f"{before}attack_prob{after}"] * bool(c.attack) + [f"{before}health_level{after}"] * bool(c.health)


def _type_names(shape: Layout, before: str) -> list[str]:
    return [f"{before}_bit_{bit}" for bit in range(shape.type_bits)]


def visibility(shape: Layout, state: Any) -> np.ndarray:
    """(n_agents, n_agents + n_enemies) bool. It knows neither cone nor tags, as in SMACv2."""
    w, n = state.world, shape.n_allies
    alive = np.asarray(w.life) > 0
    sight = shape.sight[np.asarray(state.kinds)[:n]]
    distance = np.hypot(*(np.asarray(p)[None] - np.asarray(p)[:n, None] for p in (w.x, w.y)))
    seen = (distance < sight[:, None]) & alive[None] & alive[:n, None]
    pairs = np.triu(seen[:, :n], 1)
    return np.concatenate([pairs | pairs.T, seen[:, n:]], axis=1)
