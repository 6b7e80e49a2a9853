"""A small field for hand-made fights: any units anywhere, run loop by loop with chosen orders and jitter."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smac.maps import Group, MapSpec
from emu.envs.smac.roster import roster
from emu.envs.smac.simulate import advance_many, fresh_world, read_orders, tick
from emu.envs.smac.terrain import OPEN

STOP, NORTH, SOUTH, EAST, WEST, ATTACK = 1, 2, 3, 4, 5, 6


def field(allies: list[tuple[str, float, float]], enemies: list[tuple[str, float, float]], **options) -> MapSpec:
    """Units at given places; enemies stay where they are unless they notice somebody."""
    options = {"terrain": OPEN, "attack": None, **options}
    groups = [tuple(Group((x, y), ((name, 1),)) for name, x, y in side) for side in (allies, enemies)]
    return MapSpec("field", *groups, limit=1000, **options)


@functools.cache
def _loop(spec: MapSpec):
    r = roster(spec)

    @jax.jit
    def run(world, action, jitter, n):
        world, orders = read_orders(r, world, action)
        return jax.lax.fori_loop(0, n, lambda _, w: tick(r, w, orders, jitter), world)

    return run


class Fight:
    """The state of a fight on the host; `loops(n, actions)` gives an order and runs n loops."""

    def __init__(self, spec: MapSpec, **changes: dict[int, float]) -> None:
        self.spec, self.r = spec, roster(spec)
        self.world = jax.tree.map(lambda a: a[:, None], fresh_world(self.r))
        for name, values in changes.items():
            array = np.array(getattr(self.world, name))
            for i, value in values.items():
                array[i] = value
            self.world = self.world._replace(**{name: jnp.asarray(array)})

    def loops(self, n: int, *actions: int, jitter: float = 0.0) -> Fight:
        action = jnp.asarray(actions or [STOP] * self.r.n_allies, jnp.int32)[:, None]
        noise = jnp.full((self.r.n, 1), jitter, jnp.float32)
        self.world = _loop(self.spec)(self.world, action, noise, n)
        return self

    def steps(self, n: int, *actions: int) -> Fight:
        """Whole steps of eight loops, with all that happens once a step."""
        action = jnp.asarray(actions or [STOP] * self.r.n_allies, jnp.int32)[:, None]
        for _ in range(n):
            self.world = advance_many(self.r, self.world, action, jnp.zeros((self.r.n, 1), jnp.float32))
        return self

    def __getattr__(self, name: str) -> np.ndarray:
        return np.asarray(getattr(self.world, name))[:, 0]

    @property
    def health(self) -> np.ndarray:
        return self.life + self.shield
