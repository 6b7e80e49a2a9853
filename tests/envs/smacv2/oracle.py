"""A slow, plain reading of SMACv2's rules in NumPy: vectors, availability, tags, rewards. One agent, one row at a time.

`battle` gives a state with units of given kinds at given places, so that the oracle and the environment look at the
same thing.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from emu.envs.smacv2.draws import Setup
from emu.envs.smacv2.env import Smacv2Env
from emu.envs.smacv2.state import State

SIGHT = {"marine": 9, "marauder": 10, "medivac": 11, "stalker": 10, "zealot": 9, "colossus": 10, "hydralisk": 9,
         "zergling": 8, "baneling": 8}  # fmt: skip
REACH = {"marine": 5, "marauder": 6, "medivac": 4, "stalker": 6, "zealot": 2, "colossus": 7, "hydralisk": 5,
         "zergling": 2, "baneling": 2}  # fmt: skip
LIFE = {"marine": 45, "marauder": 125, "medivac": 150, "stalker": 80, "zealot": 100, "colossus": 200,
        "hydralisk": 80, "zergling": 35, "baneling": 30}  # fmt: skip
SHIELD = {"stalker": 80, "zealot": 50, "colossus": 150}
DIVISOR = {"marine": 15, "marauder": 25, "medivac": 200, "stalker": 35, "zealot": 22, "colossus": 24,
           "hydralisk": 10, "zergling": 11, "baneling": 1}  # fmt: skip


def battle(env: Smacv2Env, rng: np.random.Generator, spread: float = 12.0) -> State:
    """A made-up moment of a battle on the host: random kinds, places, wounds and deaths."""
    c, n = env.capabilities, env.layout.n_allies + env.layout.n_enemies
    kinds = rng.integers(0, 3, n)
    points = rng.uniform(0, spread, (n, 2))
    setup = Setup(
        jnp.asarray(kinds[: c.n_units], jnp.int32),
        jnp.asarray(kinds[c.n_units :], jnp.int32),
        jnp.asarray(points[: c.n_units]),
        jnp.asarray(points[c.n_units :]),
        jnp.asarray(rng.uniform(0, 1, c.n_units), jnp.float32) if c.attack else None,
        jnp.asarray(rng.uniform(0, 0.5, c.n_units), jnp.float32) if c.health else None,
        jnp.asarray(rng.random((c.n_units, c.n_enemies)) < 0.5) if c.mask_probability is not None else None,
    )
    state = env.begin(setup, jax.random.key(int(rng.integers(2**31))))
    w = state.world
    alive = rng.random(n) < 0.8
    life = np.where(alive, np.asarray(w.life) * rng.uniform(0.1, 1, n), 0)
    wounds = w._replace(
        life=jnp.asarray(life, jnp.float32),
        shield=jnp.asarray(np.where(alive, np.asarray(w.shield) * rng.uniform(0, 1, n), 0), jnp.float32),
        cooldown=jnp.asarray(rng.uniform(0, 20, n), jnp.float32),
        energy=w.energy * jnp.asarray(rng.uniform(0, 1, n), jnp.float32),
    )
    state = state._replace(world=wounds, step=jnp.int32(rng.integers(0, 200)))
    if env.options.conic_fov:
        state = state._replace(
            direction=jnp.asarray(rng.integers(0, env.options.num_fov_actions, c.n_units), jnp.int32)
        )
    return state._replace(last_action=jnp.asarray(rng.integers(0, env.spec.n_actions, c.n_units), jnp.int32))


class Oracle:
    """What SMACv2 would say about a state."""

    def __init__(self, env: Smacv2Env, state: State) -> None:
        self.env, self.o, self.c = env, env.options, env.capabilities
        self.state, self.w = state, jax.device_get(state.world)
        self.n, self.m = self.c.n_units, self.c.n_enemies
        self.names = [self.c.race.types[k] for k in np.asarray(state.kinds)]
        self.first = 6 + (self.o.num_fov_actions if self.o.conic_fov else 0)

    def distance(self, i: int, j: int) -> float:
        return math.hypot(self.w.x[j] - self.w.x[i], self.w.y[j] - self.w.y[i])

    def sight(self, i: int) -> float:
        return SIGHT[self.names[i]] if self.o.use_unit_ranges else 9

    def reach(self, i: int) -> float:
        return REACH[self.names[i]] if self.o.use_unit_ranges else 6

    def in_cone(self, i: int, j: int, reach: float) -> bool:
        """By angles, unlike the environment. A direction away from the side of the place is mirrored or stood up."""
        if self.distance(i, j) > reach:
            return False
        fx, fy = self.direction(i)
        dx, dy = self.w.x[j] - self.w.x[i], self.w.y[j] - self.w.y[i]
        upright, level = abs(fx) < 1e-6, abs(fy) < 1e-6
        if upright or (fx > 0) != (dx > 0):
            fx, fy = (-fx, 0.0) if level else (0.0, math.copysign(1.0, fy))
        turn = abs(math.atan2(dy, dx) - math.atan2(fy, fx)) % (2 * math.pi)
        return min(turn, 2 * math.pi - turn) < math.pi / self.o.num_fov_actions

    def near(self, i: int, j: int) -> bool:
        if self.o.conic_fov:
            return self.in_cone(i, j, self.sight(i))
        return self.distance(i, j) < self.sight(i)

    def alive(self, i: int) -> bool:
        return self.w.life[i] > 0

    def shootable(self, i: int, k: int) -> bool:
        """Whether target number k of agent i is in reach, of the right kind, and alive."""
        heals = self.names[i] == "medivac"
        if k >= (self.n if heals else self.m):
            return False
        j = k if heals else self.n + k
        if not self.alive(j) or (heals and self.names[j] == "medivac"):
            return False
        if self.o.conic_fov:
            return self.in_cone(i, j, self.reach(i))
        return self.distance(i, j) <= self.reach(i)

    def available(self, i: int) -> list[bool]:
        actions = [False] * self.env.spec.n_actions
        if not self.alive(i):
            return [True, *actions[1:]]
        actions[1] = True
        for k, (dx, dy) in enumerate([(0, 1), (0, -1), (1, 0), (-1, 0)]):
            cell = int(self.w.x[i] + dx), int(self.w.y[i] + dy)
            actions[2 + k] = all(0 <= c < 32 for c in cell)
        for k in range(6, self.first):
            actions[k] = True
        heals = self.names[i] == "medivac"
        for k in range(self.n if heals else self.m):
            j = k if heals else self.n + k
            anywhere = self.alive(j) and not (heals and self.names[j] == "medivac")
            actions[self.first + k] = self.shootable(i, k) if self.o.action_mask else anywhere
        return actions

    def health(self, i: int) -> list[float]:
        share = self.w.life[i] / LIFE[self.names[i]]
        if i < self.n and self.c.health is not None:
            level = float(self.state.health[i])
            share = (share - level) / (1 - level)
        shield = [self.w.shield[i] / SHIELD[self.names[i]]] if self.c.race.shields else []
        return [share, *shield]

    def bits(self, i: int) -> list[float]:
        return [float(self.names[i] == name) for name in self.c.race.types]

    def extras(self, i: int) -> list[float]:
        values = [self.state.attack[i]] if self.c.attack else []
        return [float(v) for v in [*values, *([self.state.health[i]] if self.c.health else [])]]

    def place(self, i: int, j: int) -> list[float]:
        s = self.sight(i)
        return [self.distance(i, j) / s, (self.w.x[j] - self.w.x[i]) / s, (self.w.y[j] - self.w.y[i]) / s]

    def observation(self, i: int, rows: list[bool] | None = None) -> list[float]:
        """`rows` are the enemies whose rows the tags allow; all of them by default."""
        time = [int(self.state.step) / 200] if self.o.obs_timestep_number else []
        width = self.env.spec.obs_dim - len(time)
        if not self.alive(i):
            return [0.0] * width + time
        seen = [float(a) for a in self.available(i)[2:6]]
        for e in range(self.m):
            j = self.n + e
            row = [float(self.shootable(i, e)), *self.place(i, j), *self.health(j), *self.bits(j)]
            if self.c.mask_probability is not None and bool(self.state.mask[i, e]):
                row[4:] = [0.0] * (len(row) - 4)
            shown = self.alive(j) and (self.near(i, j) or self.o.fully_observable) and (rows is None or rows[e])
            seen += row if shown else [0.0] * len(row)
        for j in (j for j in range(self.n) if j != i):
            bits = self.bits(j) if self.c.teams.observe else [0.0] * 3
            row = [1.0, *self.place(i, j), *self.health(j), *self.extras(j), *bits]
            if self.o.obs_last_action:
                row += [float(a == int(self.state.last_action[j])) for a in range(self.env.spec.n_actions)]
            shown = self.alive(j) and (self.near(i, j) or self.o.fully_observable)
            seen += row if shown else [0.0] * len(row)
        own = [*self.health(i), *self.extras(i)]
        own += [self.w.x[i] / 32, self.w.y[i] / 32] if self.o.obs_own_pos else []
        return seen + own + self.direction(i) + self.bits(i) + time

    def direction(self, i: int) -> list[float]:
        if not self.o.conic_fov:
            return []
        angle = 2 * math.pi * int(self.state.direction[i]) / self.o.num_fov_actions
        return [math.cos(angle), math.sin(angle)]

    def full_state(self) -> list[float]:
        values: list[float] = []
        for i in range(self.n):
            charge = self.w.energy[i] if self.names[i] == "medivac" else self.w.cooldown[i]
            life, *shield = self.health(i)
            place = [(self.w.x[i] - 16) / 32, (self.w.y[i] - 16) / 32]
            row = [life, charge / DIVISOR[self.names[i]], *place, *shield, *self.extras(i)]
            row += self.direction(i) + self.bits(i)
            values += row if self.alive(i) else [0.0] * len(row)
        for j in range(self.n, self.n + self.m):
            life, *shield = self.health(j)
            row = [life, (self.w.x[j] - 16) / 32, (self.w.y[j] - 16) / 32, *shield, *self.bits(j)]
            values += row if self.alive(j) else [0.0] * len(row)
        for i in range(self.n):
            values += [float(a == int(self.state.last_action[i])) for a in range(self.env.spec.n_actions)]
        return values + ([int(self.state.step) / 200] if self.o.state_timestep_number else [])


class TagOracle:
    """Who has seen which enemy, by going through SMACv2's loops: agents in turn, enemies in turn."""

    def __init__(self, n: int, m: int) -> None:
        self.tag: list[int | None] = [None] * m
        self.seen = np.zeros((m, n), bool)

    def forget(self, allies_alive: np.ndarray, enemies_alive: np.ndarray) -> None:
        for a in np.flatnonzero(~allies_alive):
            for e, owner in enumerate(self.tag):
                if owner == a:
                    self.tag[e], self.seen[e] = None, False
        for e in np.flatnonzero(~enemies_alive):
            self.tag[e], self.seen[e] = None, False

    def look(
        self, order: list[int], near: np.ndarray, alive: np.ndarray, admitted: np.ndarray, bug: bool
    ) -> np.ndarray:
        """Rows that are shown, (n, m), apart from sight. `admitted`, (m, n), says who is let in when others find."""
        shown = np.zeros_like(near)
        for a in order:
            if not alive[a]:
                continue
            for e in range(near.shape[1]):
                if near[a, e] and self.tag[e] is None:
                    self.tag[e] = a
                    self.seen[e] = admitted[e]
                    self.seen[e, a] = True
                shown[a, e] = self.seen[e, a]
                if bug and not self.seen[e, a]:
                    shown[a, : e + 1] = False
        return shown
