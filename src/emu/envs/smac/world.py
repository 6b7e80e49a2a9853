"""The moving part of a battle, and how pairs of units are visited.

Inside the simulator every array is (units, E): the environments are the last axis, and all work is elementwise along
it. Pairs are visited by folding over one of the two units, which compiles to a single loop over contiguous memory;
this is several times faster on a CPU than reducing an (E, units, units) array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from emu.types import Array

UNROLL = 4


class World(NamedTuple):
    """All units of a battle, allies first: (N,) for one environment, (N, E) inside the simulator; mostly float32."""

    x: Array
    y: Array
    life: Array
    shield: Array
    cooldown: Array  # loops until the weapon may start again
    windup: Array  # loops until a started attack hits or launches; 0: none is under way
    backswing: Array  # loops the unit still stands after an attack
    target: Array  # int32, a unit's number or -1
    flight: Array  # loops until a launched hit lands; 0: none is under way
    aim: Array  # int32, whom it was launched at
    unhurt: Array  # loops since the unit was last hit
    attacker: Array  # int32, who hit it last, or -1
    energy: Array
    healing: Array  # bool
    bursting: Array  # bool: killed in the last loop and about to explode
    vx: Array  # displacement in the last loop: inertia of flying units
    vy: Array
    lookout: Array  # loops until the unit looks out for targets again; a period or more: has not set out yet
    side: Array  # on which side a unit that was held up passes: 1 left, -1 right; 0: nobody was in its way
    goal: Array  # (2,): the point of the enemies' order
    script: Array  # (1,): loops until the map's script looks after idle enemies again; only where it does


class Orders(NamedTuple):
    """What the allies were told for this step, (n_allies, E)."""

    dx: Array  # unit direction of a move order, 0 otherwise
    dy: Array
    target: Array  # int32: whom to attack or heal, or -1


def fold(indices: Sequence[int], body: Callable[[Any, Any], Any], init: Any) -> Any:
    """`for j in indices: init = body(init, j)` for consecutive indices, as a short compiled loop of unrolled pieces.

    A loop of at least two rounds also makes XLA compute what goes in and what comes out once; fully unrolled, it fuses
    the history of every row into each of its uses and repeats it.
    """
    n = len(indices)
    pieces = [s for s in range(1, UNROLL + 1) if n // s >= 2]
    piece = min(pieces, key=lambda s: n // s + 2 * (n % s), default=1)  # few rounds, little left over
    extra = n if n < 2 else n % piece
    for j in indices[:extra]:
        init = body(init, j)
    if n < 2:
        return init
    first = indices[extra]

    def round_(k: Any, carry: Any) -> Any:
        for i in range(piece):
            carry = body(carry, first + k * piece + i)
        return carry

    return jax.lax.fori_loop(0, (n - extra) // piece, round_, init)


def column(table: np.ndarray | Callable[[slice, Any], Array], rows: slice, j: Any) -> Array:
    """Entries of a pair table for unit `j`, one for each of `rows`: (rows, 1), or (rows, E) where units are drawn."""
    if callable(table):
        return table(rows, j)
    block = table[rows]
    if isinstance(j, int):
        return block[:, j]
    if np.all(block == block[:, :1]):
        return block[:, 0]
    return jnp.asarray(np.moveaxis(block, 1, 0))[j]


def each(indices: Sequence[int], body: Callable[[Any, Any], Any], init: Any) -> Any:
    """`fold` for special units: one or two that are known are better unrolled."""
    if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
        return fold(indices, body, init)
    for j in indices:
        init = body(init, j)
    return init


def at(figures: Array, j: Any) -> Array:
    """The entry of unit `j`, also where the figures are constants and the unit is not."""
    return figures[j] if isinstance(j, int) else jnp.asarray(figures)[j]


def stack(allies: Any, enemies: Any) -> Any:
    """Join the two sides, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=0), allies, enemies)


def put_row(array: Array, i: Any, row: Array) -> Array:
    """`array` with row `i` replaced; for a known one concatenation compiles better than a scatter."""
    if not isinstance(i, int):
        return jax.lax.dynamic_update_index_in_dim(array, row, i, 0)
    return jnp.concatenate([array[:i], row[None], array[i + 1 :]], axis=0)
