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

    spawn: float = 0.0  # cells by which each unit's place may differ from the map's, along either axis
    start: bool = True  # how many loops, less than a step, lie between the enemies' order and the first decision
    lookout: bool = True  # when, within its period, each enemy takes up its order, and later looks out for targets
    weapons: bool = True  # the jitter of weapon periods

    def begin(self, r: Roster, w: World, key: Array) -> World:
        """The battle as it really starts, from the battle as the map declares it."""
        keys = jax.random.split(key, 4)
        shares, phases, loops = _draw(keys, r.n)
        if self.spawn:
            shift = jnp.maximum(shares * (2 * self.spawn) - self.spawn, -self.spawn)
            w = w._replace(x=w.x + shift[0], y=w.y + shift[1])
        phase = (phases % LOOKOUT_PERIOD).astype(jnp.float32) if self.lookout else jnp.zeros(r.n)
        w = w._replace(lookout=phase)
        if r.spec.attack_to is not None:
            here, there = np.array(r.spec.attack, np.float32), np.array(r.spec.attack_to, np.float32)
            w = w._replace(goal=here + jax.random.uniform(keys[2]) * (there - here))
        if r.spec.attack not in ("nearest", None):  # SMACv2's enemies are sent by a script, a building by nobody
            passed = loops % LOOPS_PER_STEP if self.start and r.spec.attack != "unit" else 0
            w = _set_out(r, w, phase - passed, self.lookout)
        return w

    def jitter(self, units: int, key: Array) -> Array:
        """Loops added to the periods of attacks that start in this step, (N,)."""
        if not self.weapons:
            return jnp.full(units, sum(JITTER) / 2, jnp.float32)
        return jax.random.uniform(key, (units,), jnp.float32, *JITTER)


def _draw(keys: Array, n: int) -> tuple[Array, Array, Array]:
    """Uniform numbers in [0, 1), (2, n); random bits, (n,); random bits, (): for places, lookouts and the start.

    With few copies starting small operations is what costs, so all bits come from one call. They are those of
    `jax.random.uniform` and `randint`, which make several.
    """
    lower = jax.vmap(jax.random.split)(keys[np.array([1, 3])])[:, 1]  # randint takes its low bits from the second half
    bits = jax.vmap(lambda key: jax.random.bits(key, (2 * n,)))(jnp.concatenate([keys[:1], lower]))
    mantissa = bits[0] >> 9 | np.uint32(0x3F800000)
    shares = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - 1.0
    return shares.reshape(2, n), bits[1, :n], bits[2, 0]


def _set_out(r: Roster, w: World, until: Array, own_time: bool) -> World:
    """The enemies at the first decision: `until` loops before each takes up its order.

    Where that is in the past they have walked to its point since then, in formation. The others stand and wait for it,
    as `lookout` says: it is a period or more away from the next look. With a time of its own each looks out a period
    later.
    """
    dx, dy = w.goal[0] - w.x, w.goal[1] - w.y
    far = jnp.sqrt(dx * dx + dy * dy)
    enemy = r.number[:, 0] >= r.n_allies
    share = jnp.where(enemy, jnp.clip(-until * r.speed[:, 0] / far, 0.0, 1.0), 0.0)
    lookout = jnp.where(enemy, LOOKOUT_PERIOD + until, w.lookout) if own_time else w.lookout
    return w._replace(x=w.x + share * dx, y=w.y + share * dy, lookout=lookout)
