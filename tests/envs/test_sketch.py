"""Sketches: what a state vector says of the figures is what the environment's own state says."""

import json

import jax
import numpy as np
import pytest

from emu import envs
from emu.envs.protocols import Sketchable


def wander(env, steps, seed=0):
    """States of a random walk, one a step."""
    step, key = jax.jit(env.step), jax.random.PRNGKey(seed)
    state, found = env.reset(key), []
    for number in range(steps):
        found.append(state)
        avail = np.asarray(env.avail(state))
        action = np.array(
            [np.random.default_rng([number, i]).choice(np.flatnonzero(row)) for i, row in enumerate(avail)]
        )
        state, outcome = step(state, action, jax.random.fold_in(key, number))
        if outcome.terminated or outcome.truncated:
            break
    return [*found, state]


def vectors(env, states):
    return np.stack([np.asarray(env.state(s)) for s in states]).astype(np.float16)  # as snapshots keep them


@pytest.mark.parametrize("sight", ["reversed", "full_observation"])
def test_gridworld_agents_stand_in_the_middle_of_their_cells(sight):
    env = envs.make("gridworld", sight=sight, noise_dim=3)
    states = wander(env, 20)
    figures = env.sketch(vectors(env, states)).figures
    positions = np.stack([np.asarray(s.position) for s in states])
    np.testing.assert_array_equal(figures[..., 0], positions[..., 1] + 0.5)
    np.testing.assert_array_equal(figures[..., 1], positions[..., 0] + 0.5)
    np.testing.assert_array_equal(figures[..., 2:], np.broadcast_to([1, 0], figures[..., 2:].shape))


@pytest.mark.parametrize("name", ["smac/3m", "smac/2s3z", "smac/MMM2"])
def test_smac_units_stand_where_they_fight_and_the_fallen_are_gone(name):
    env = envs.make(name)
    states = wander(env, 45)
    sketch = env.sketch(vectors(env, states))
    worlds = [s.world for s in states]
    life = np.stack([np.asarray(w.life) for w in worlds])
    alive = life > 0
    assert not alive.all()
    np.testing.assert_allclose(sketch.figures[..., 2], life / env.roster.life[:, 0], atol=2e-3)
    assert (sketch.figures[~alive][:, 2] == 0).all()
    shield = np.stack([np.asarray(w.shield) for w in worlds]) / np.maximum(env.roster.shield[:, 0], 1)
    np.testing.assert_allclose(sketch.figures[..., 3][alive], shield[alive], atol=2e-3)
    x, y = (np.stack([np.asarray(p) for p in axis])[alive] for axis in zip(*((w.x, w.y) for w in worlds), strict=True))
    left, top = (x - sketch.figures[..., 0][alive]), (y + sketch.figures[..., 1][alive])
    assert np.ptp(left) < 0.05 and np.ptp(top) < 0.05  # one shift for all units and states
    width, height = sketch.scene["width"], sketch.scene["height"]
    assert (sketch.figures[alive][:, :2] <= [width, height]).all()


@pytest.mark.parametrize("name", ["gridworld", "gridworld/tiny", "smac/MMM2", "smac/corridor"])
def test_a_scene_is_json_with_a_figure_a_unit(name):
    env = envs.make(name)
    assert isinstance(env, Sketchable)
    sketch = env.sketch(np.zeros((2, env.spec.state_dim), np.float16))
    scene = json.loads(json.dumps(sketch.scene))
    assert sketch.figures.shape == (2, len(scene["figures"]), 4)
    for shape in scene["shapes"]:
        (kind,) = {"polygon", "box", "line"} & set(shape)
        points = np.reshape(shape[kind], (-1, 2))
        assert (points >= 0).all() and (points <= [scene["width"], scene["height"]]).all()
