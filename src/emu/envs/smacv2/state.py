"""One battle in progress. What an option or a capability does not need is None."""

from __future__ import annotations

from typing import Any, NamedTuple

from emu.envs.smac.world import World
from emu.types import Array


class Standing(NamedTuple):
    """The order each ally is carrying out, (n_allies,): kept only where a step may send none."""

    target: Array  # int32: whom to attack or heal, or -1
    walks: Array  # bool
    x: Array  # where it walks to
    y: Array


class Tags(NamedTuple):
    """Who has seen which enemy: kept only where that matters."""

    first: Array  # (n_enemies,) int32: the agent that saw it first, or -1
    seen: Array  # (n_enemies, n_allies) bool: who may see it since
    shown: Array  # (n_allies, n_enemies) bool: the rows that are in the observations now


class State(NamedTuple):
    world: World
    kinds: Array  # (N,) int32, indices into the race's types; allies first
    last_action: Array  # (n_allies,) int32, -1 before the first step
    step: Array  # () int32
    direction: Array  # (n_allies,) int32: where each agent looks, with the cone
    attack: Array  # (n_allies,): probability that an order to attack is sent
    health: Array  # (n_allies,): share of life below which a unit is killed
    mask: Array  # (n_allies, n_enemies) bool: health and type are hidden
    standing: Any  # Standing
    tags: Any  # Tags
