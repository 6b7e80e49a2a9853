"""What differs from one battle to the next: the start, drawn once from the key of `reset`, and the weapons' periods.

Each source can be switched off for study; sizes hold for all maps.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smac.behaviour import LOOKOUT_PERIOD
from emu.envs.smac.roster import Roster
from emu.envs.smac.units import LOOPS_PER_STEP
from emu.envs.smac.world import World
from emu.types import Array

JITTER = (-1.0, 2.0)  # loops added to every weapon period, drawn anew for each attack: the game's own data


@dataclasses.dataclass(frozen=True)
class Chance:
    """Which sources of chance are on."""

    spawn: float = 0.1  # cells by which each unit's place may differ from the map's, along either axis
    start: bool = True  # how many loops, less than a step, the enemies have walked before the first decision
    lookout: bool = True  # when, within its period, each enemy looks out for targets
    weapons: bool = True  # the jitter of weapon periods

    def begin(self, r: Roster, w: World, key: Array) -> World:
        """The battle as it really starts, from the battle as the map declares it."""
        keys = jax.random.split(key, 4)
        if self.spawn:
            x, y = jax.random.uniform(keys[0], (2, r.n), jnp.float32, -self.spawn, self.spawn)
            w = w._replace(x=w.x + x, y=w.y + y)
        if self.lookout:
            phase = jax.random.randint(keys[1], (r.n,), 0, LOOKOUT_PERIOD)
            w = w._replace(lookout=phase.astype(jnp.float32))
        if r.spec.attack_to is not None:
            here, there = np.array(r.spec.attack, np.float32), np.array(r.spec.attack_to, np.float32)
            w = w._replace(goal=here + jax.random.uniform(keys[2]) * (there - here))
        if self.start and not isinstance(r.spec.attack, str | None):
            w = _walked(r, w, jax.random.randint(keys[3], (), 0, LOOPS_PER_STEP))
        return w

    def jitter(self, units: int, key: Array) -> Array:
        """Loops added to the periods of attacks that start in this step, (N,)."""
        if not self.weapons:
            return jnp.full(units, sum(JITTER) / 2, jnp.float32)
        return jax.random.uniform(key, (units,), jnp.float32, *JITTER)


def _walked(r: Roster, w: World, loops: Array) -> World:
    """The enemies after walking towards the point of their order for some loops, in formation."""
    dx, dy = w.goal[0] - w.x, w.goal[1] - w.y
    far = jnp.sqrt(dx * dx + dy * dy)
    share = jnp.where(r.number[:, 0] >= r.n_allies, jnp.minimum(loops * r.speed[:, 0] / far, 1.0), 0.0)
    return w._replace(x=w.x + share * dx, y=w.y + share * dy)
