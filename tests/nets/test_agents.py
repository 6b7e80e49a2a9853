"""The recurrent agent: acting and learning see the same Q, and what an agent may know."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.nets.agents import RecurrentAgent, SeparateAgents

T, H, N, A, OBS = 5, 4, 2, 3, 2


@functools.cache
def agent_and_params(**options):
    agent = RecurrentAgent(N, A, hidden=H, **options)
    rng, shapes = np.random.default_rng(1), jax.eval_shape(functools.partial(new_params, agent))
    return agent, jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32) / 2, shapes)


def new_params(agent):
    inputs = jnp.zeros((1, N, agent.hidden)), jnp.zeros((1, N, OBS)), jnp.zeros((1, N, A))
    return agent.init(jax.random.PRNGKey(0), *inputs, method="step")


@functools.cache
def compiled(agent, method):
    return jax.jit(functools.partial(agent.apply, method=method))


def unroll(agent, params, obs, last):
    """Q, hidden states and the own heads' part of Q."""
    return compiled(agent, "unroll")(params, obs, last)


def episode(seed=0, copies=2):
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(T, copies, N, OBS)).astype(np.float32)
    last = np.eye(A, dtype=np.float32)[rng.integers(A, size=(T, copies, N))]
    last[0] = 0
    return obs, last


@pytest.mark.parametrize("options", [{}, {"own_heads": True, "agent_id": False}, {"last_action": False}])
def test_acting_step_by_step_sees_what_learning_sees_at_once(options):
    agent, params = agent_and_params(**options)
    obs, last = episode()
    q, hiddens, _ = unroll(agent, params, obs, last)
    hidden = agent.initial(obs.shape[1])
    for t in range(T):
        step_q, hidden = compiled(agent, "step")(params, hidden, obs[t], last[t])
        np.testing.assert_allclose(step_q, q[t], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(hidden, hiddens[t], rtol=1e-5, atol=1e-6)


def test_agents_with_equal_inputs_differ_by_their_number_only():
    obs, last = (np.repeat(x[:, :, :1], N, axis=2) for x in episode())
    with_id, without_id = (
        unroll(agent, params, obs, last)[0] for agent, params in (agent_and_params(), agent_and_params(agent_id=False))
    )
    assert not np.allclose(with_id[:, :, 0], with_id[:, :, 1])
    np.testing.assert_allclose(without_id[:, :, 0], without_id[:, :, 1])


def test_an_agents_value_ignores_the_other_agents_and_the_future():
    agent, params = agent_and_params()
    obs, last = episode()
    other = obs.copy()
    other[:, :, 1] += 1.0
    other[3:] += 1.0
    before, after = (unroll(agent, params, o, last)[0] for o in (obs, other))
    np.testing.assert_allclose(before[:3, :, 0], after[:3, :, 0])
    assert not np.allclose(before[3, :, 0], after[3, :, 0])


def test_q_is_the_shared_head_plus_the_own_head():
    agent, params = agent_and_params(own_heads=True)
    obs, last = episode()
    q, hidden, own = unroll(agent, params, obs, last)
    p = params["params"]
    for i in range(N):
        own_i = hidden[:, :, i] @ p["own_kernel"][i] + p["own_bias"][i]
        shared_i = hidden[:, :, i] @ p["head"]["kernel"] + p["head"]["bias"]
        np.testing.assert_allclose(own[:, :, i], own_i, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(q[:, :, i], shared_i + own_i, rtol=1e-5, atol=1e-6)


def test_an_own_head_learns_from_its_agent_only():
    agent, params = agent_and_params(own_heads=True)
    obs, last = episode()
    first_agent = jax.jit(jax.grad(lambda p: unroll(agent, p, obs, last)[0][:, :, 0].sum()))
    grads = first_agent(params)["params"]
    assert np.abs(grads["own_kernel"][0]).max() > 0
    np.testing.assert_array_equal(grads["own_kernel"][1], 0)


def test_weights_start_where_pytorchs_start():
    agent = RecurrentAgent(N, A, hidden=64)
    p = jax.jit(functools.partial(new_params, agent))()["params"]
    for leaf, fan_in in ((p["recurrent_kernel"], 64), (p["gates"]["kernel"], 64), (p["encode"]["kernel"], OBS + A + N)):
        assert 0.9 < np.abs(leaf).max() * np.sqrt(fan_in) <= 1.0


@pytest.mark.parametrize("lengths", [(2, 5, 1, 3, 4), (3,), (1, 4), (2, 2, 2), (6, 0, 9, 5, 5, 1)])
def test_lengths_in_any_order_change_nothing_that_matters(lengths):
    """Each row keeps its own Q, and the gradient of what matters is that of the whole loop."""
    agent, params = agent_and_params()
    rng, batch = np.random.default_rng(3), len(lengths)
    obs, last = (rng.normal(size=(T, batch, N, size)).astype(np.float32) for size in (OBS, A))
    at = rng.normal(size=(T, batch, N, A)) * (np.arange(T)[:, None] < np.array(lengths))[..., None, None]

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def loss(params, lengths):
        q = agent.apply(params, obs, last, lengths, method="unroll")[0]
        return (at * q).sum(), jnp.where(at != 0, q, 0.0)

    (_, q), grads = loss(params, jnp.array(lengths))
    (_, expected), expected_grads = loss(params, None)
    np.testing.assert_allclose(q, expected, rtol=1e-5, atol=1e-5)
    for got, want in zip(jax.tree.leaves(grads), jax.tree.leaves(expected_grads), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_separate_agents_are_networks_of_their_own_side_by_side():
    separate, one = SeparateAgents(N, A, hidden=H), RecurrentAgent(1, A, hidden=H, agent_id=False)
    rng = np.random.default_rng(0)
    obs, last = rng.normal(size=(4, 3, N, OBS)).astype(np.float32), np.zeros((4, 3, N, A), np.float32)
    hidden = rng.normal(size=(3, N, H)).astype(np.float32)
    params = separate.init(jax.random.PRNGKey(0), hidden, obs[0], last[0], method="step")
    q, hiddens, own = separate.apply(params, obs, last, method="unroll")
    acted, following = separate.apply(params, hidden, obs[0], last[0], method="step")
    assert own.shape == ()
    for agent in range(N):
        mine = {"params": jax.tree.map(lambda x, i=agent: x[i], params["params"]["agents"])}
        alone = slice(agent, agent + 1)
        expected_q, expected_hidden, _ = one.apply(mine, obs[:, :, alone], last[:, :, alone], method="unroll")
        np.testing.assert_allclose(q[:, :, alone], expected_q, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(hiddens[:, :, alone], expected_hidden, rtol=1e-5, atol=1e-6)
        expected = one.apply(mine, hidden[:, alone], obs[0][:, alone], last[0][:, alone], method="step")
        np.testing.assert_allclose(acted[:, alone], expected[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(following[:, alone], expected[1], rtol=1e-5, atol=1e-6)
    kernels = params["params"]["agents"]["head"]["kernel"]
    assert not np.allclose(kernels[0], kernels[1])
