"""Mixers against slow oracles, and their promises: Individual-Global-Max, monotonicity, stopped gradients."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.config import MixerConfig
from emu.envs.spec import EnvSpec
from emu.errors import ConfigError
from emu.nets.init import Linear
from emu.nets.mixers import QMIX, QPLEX, VDN, Independent, Single, make_mixer

from . import oracles

N, A, U, S = 3, 4, 5, 19  # a state with features beyond the agents' own
OPTIONS = [
    dict(weighted_head=weighted, nonlinear=nonlinear)
    for weighted, nonlinear in itertools.product((False, True), repeat=2)
]
SMALL = dict(embed=6, hyper_hidden=9, heads=2, kernels=3, attention_regulariser=0.1)
DEEP = dict(importance_layers=3, kernels=3)
quick = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)


def env_spec(n_agents=N, unit_dim=U, state_dim=S):
    return EnvSpec("test", "1", n_agents, A, 7, state_dim, 10, unit_dim, True, (0.0, 1.0))


def mixer_of(kind, **options):
    return make_mixer(MixerConfig(kind=kind, **options), env_spec(1 if kind == "none" else N))


def inputs(seed=0, lead=(6,), n_agents=N, n_actions=A, state_dim=S):
    """chosen, greedy, actions_onehot, state, consistent with a random table of Q-values."""
    rng = np.random.default_rng(seed)
    table = rng.normal(0, 2, (*lead, n_agents, n_actions)).astype(np.float32)
    action = rng.integers(n_actions, size=(*lead, n_agents))
    chosen = np.take_along_axis(table, action[..., None], -1)[..., 0]
    onehot = np.eye(n_actions, dtype=np.float32)[action]
    return chosen, table.max(-1), onehot, rng.normal(size=(*lead, state_dim)).astype(np.float32)


@functools.cache
def compiled(function, mixer):
    """Mixers are frozen and compare by their fields, so equal ones are compiled once for all tests."""
    return jax.jit(functools.partial(function, mixer))


def _apply(mixer, params, *args):
    return mixer.apply(params, *args)


def _gradients(mixer, params, *args):
    """Of the sum of Q_tot: by parameters, chosen and greedy Q-values."""
    return jax.grad(lambda *first: mixer.apply(*first, *args[2:]).q_tot.sum(), argnums=(0, 1, 2))(params, *args[:2])


def apply(mixer, params, *args):
    return compiled(_apply, mixer)(params, *args)


def gradients(mixer, params, *args):
    return compiled(_gradients, mixer)(params, *args)


@functools.cache
def shapes_of(mixer, **sizes):
    sizes.setdefault("n_agents", 1 if isinstance(mixer, Single) else N)
    return jax.eval_shape(mixer.init, jax.random.key(0), *inputs(**sizes))


def random_params(mixer, seed=0, scale=1.0, **sizes):
    """About as large as `init` makes them, without compiling it."""
    rng = np.random.default_rng(seed)

    def draw(leaf):
        bound = scale / np.sqrt(leaf.shape[-2] if leaf.ndim > 1 else 25)
        return rng.uniform(-bound, bound, leaf.shape).astype(np.float32)

    return jax.tree.map(draw, shapes_of(mixer, **sizes))


# Values


def test_vdn_is_the_sum():
    args = inputs()
    out = VDN().apply({}, *args)
    np.testing.assert_allclose(out.q_tot, args[0].sum(-1), rtol=1e-6)


def test_a_single_agent_is_passed_through():
    args = inputs(n_agents=1)
    out = mixer_of("none").apply({}, *args)
    np.testing.assert_array_equal(out.q_tot, args[0][:, 0])


@pytest.mark.parametrize("sizes", [{}, dict(embed=6, hyper_hidden=9)])
def test_qmix_equals_the_oracle(sizes):
    mixer = mixer_of("qmix", **sizes)
    params, args = random_params(mixer), inputs()
    layers = oracles.qmix_layers(params)
    expected = [oracles.qmix(layers, chosen, state) for chosen, _, _, state in zip(*args, strict=True)]
    np.testing.assert_allclose(apply(mixer, params, *args).q_tot, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("sizes", [{}, SMALL, DEEP])
@pytest.mark.parametrize("scale", [1.0, 2.0])  # of the parameters: attention far from uniform
def test_qplex_equals_the_oracle(options, sizes, scale):
    mixer = mixer_of("qplex", **options, **sizes)
    params, args = random_params(mixer, scale=scale), inputs()
    layers = oracles.qplex_layers(params, N)
    coefficient = sizes.get("attention_regulariser", 0.001)
    expected = np.array(
        [oracles.qplex(layers, *row, unit_dim=U, coefficient=coefficient) for row in zip(*args, strict=True)]
    )
    out = apply(mixer, params, *args)
    np.testing.assert_allclose(out.q_tot, expected[:, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out.regulariser, expected[:, 1], rtol=1e-5, atol=1e-8)


def test_qplex_reads_keys_from_wide_own_features_too():
    """As in football, where they are an observation."""
    mixer = QPLEX(n_agents=2, n_actions=A, unit_dim=50)
    args = inputs(lead=(40,), n_agents=2, state_dim=100)
    params = random_params(mixer, n_agents=2, state_dim=100)
    layers = oracles.qplex_layers(params, 2)
    expected = [oracles.qplex(layers, *row, unit_dim=50)[0] for row in zip(*args, strict=True)]
    np.testing.assert_allclose(apply(mixer, params, *args).q_tot, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS)
@given(seed=seeds)
@quick
def test_qplex_at_the_greedy_actions_is_the_sum_of_transformed_values(options, seed):
    """Without advantage nothing depends on the actions: Q_tot = V_tot."""
    mixer = mixer_of("qplex", **options)
    params = random_params(mixer, seed)
    _, greedy, onehot, state = inputs(seed)
    q_tot = apply(mixer, params, greedy, greedy, onehot, state).q_tot
    other_actions = apply(mixer, params, greedy, greedy, np.roll(onehot, 1, axis=-1), state).q_tot
    np.testing.assert_array_equal(q_tot, other_actions)
    if not options["nonlinear"]:  # then V_tot is linear in the Q-values: a weighted sum and a bias
        _, weight, _ = gradients(mixer, params, greedy, greedy, onehot, state)
        bias = apply(mixer, params, 0 * greedy, 0 * greedy, onehot, state).q_tot
        np.testing.assert_allclose(q_tot, (weight * greedy).sum(-1) + bias, rtol=1e-4, atol=1e-4)


# Individual-Global-Max: the joint greedy action is the individual greedy actions


@pytest.mark.parametrize(
    "kind, options",
    [("vdn", {}), ("qmix", {}), ("qplex", {}), ("qplex", dict(weighted_head=True)), ("qplex", DEEP)],
)
@given(seed=seeds, scale=st.sampled_from([0.5, 1.0, 3.0]))
@quick
def test_joint_greedy_action_is_the_individual_greedy_actions(kind, options, seed, scale):
    mixer = mixer_of(kind, **options)
    params = random_params(mixer, seed, scale)
    rng = np.random.default_rng(seed)
    table = np.stack([rng.permutation(A) for _ in range(N)]).astype(np.float32)  # no ties
    joint = np.array(list(itertools.product(range(A), repeat=N)))  # every joint action
    chosen = table[np.arange(N), joint]
    greedy = np.broadcast_to(table.max(-1), chosen.shape)
    state = np.broadcast_to(rng.normal(size=S).astype(np.float32), (len(joint), S))
    onehot = np.eye(A, dtype=np.float32)[joint]
    q_tot = np.asarray(apply(mixer, params, chosen, greedy, onehot, state).q_tot)
    best = q_tot[np.flatnonzero((joint == table.argmax(-1)).all(-1))[0]]
    assert best >= q_tot.max() - 1e-6 * np.abs(q_tot).max()
    if scale == 1.0:  # weights as they start: far enough from 0 to tell actions apart in float32
        assert (q_tot < best).sum() == len(joint) - 1


@given(seed=seeds, scale=st.sampled_from([0.5, 1.0, 3.0]), agent=st.integers(0, N - 1), rise=st.floats(0.1, 10))
@quick
def test_qmix_rises_with_every_agent(seed, scale, agent, rise):
    mixer = mixer_of("qmix")
    params = random_params(mixer, seed, scale)
    chosen, *rest = inputs(seed)
    higher = chosen.copy()
    higher[:, agent] += np.float32(rise)
    before, after = apply(mixer, params, chosen, *rest).q_tot, apply(mixer, params, higher, *rest).q_tot
    assert (np.asarray(after) >= np.asarray(before) - 1e-5 * np.abs(before)).all()
    _, of_chosen, _ = gradients(mixer, params, chosen, *rest)
    assert (np.asarray(of_chosen) >= 0).all()


def test_qplex_can_rank_joint_actions_that_no_monotonic_mixer_can():
    """λ depends on the joint action: the same Q-values give another Q_tot for other actions."""
    mixer = mixer_of("qplex")
    params = random_params(mixer)
    actions = np.eye(A, dtype=np.float32)[np.array(list(itertools.product(range(A), repeat=N)))]
    greedy = np.ones((len(actions), N), np.float32)
    q_tot = apply(mixer, params, greedy - 1, greedy, actions, np.ones((len(actions), S), np.float32)).q_tot
    assert np.ptp(q_tot) > 1e-3


# Gradients


@pytest.mark.parametrize("options", OPTIONS)
def test_no_gradient_of_the_advantage_reaches_q_values_or_the_transformation(options):
    mixer = mixer_of("qplex", **options)
    params, (chosen, greedy, onehot, state) = random_params(mixer), inputs()
    of_params, of_chosen, of_greedy = gradients(mixer, params, chosen, greedy, onehot, state)
    alone, of_chosen_alone, _ = gradients(mixer, params, chosen, chosen, onehot, state)  # no advantage

    np.testing.assert_array_equal(of_greedy, 0)
    np.testing.assert_allclose(of_chosen, of_chosen_alone, rtol=1e-6)
    for name in {"query", "key", "value", "head_weight"} & of_params["params"].keys():
        jax.tree.map(np.testing.assert_array_equal, of_params["params"][name], alone["params"][name])


@pytest.mark.parametrize("weighted_head", [False, True])
def test_gradient_of_chosen_values_is_the_attention_weight(weighted_head):
    mixer = mixer_of("qplex", weighted_head=weighted_head)
    params, args = random_params(mixer), inputs()
    _, weight, _ = gradients(mixer, params, *args)
    assert (np.asarray(weight) > 0).all()
    if not weighted_head:  # every head shares out 1
        np.testing.assert_allclose(weight.sum(-1), mixer.heads, rtol=1e-5)


def test_advantage_trains_its_own_weights_where_an_action_is_not_greedy():
    mixer = mixer_of("qplex")
    params, (chosen, greedy, onehot, state) = random_params(mixer), inputs()
    of_params, *_ = gradients(mixer, params, chosen, greedy, onehot, state)
    alone, *_ = gradients(mixer, params, chosen, chosen, onehot, state)
    assert np.abs(of_params["params"]["action"]["kernel"]).max() > 0
    np.testing.assert_array_equal(alone["params"]["action"]["kernel"], 0)
    state_side = mixer.heads * mixer.hyper_hidden + mixer.embed  # columns of keys and agents in the merged layer
    np.testing.assert_array_equal(alone["params"]["from_state"]["kernel"][:, state_side:], 0)
    assert (np.abs(of_params["params"]["from_state"]["kernel"][:, state_side:]).max(0) > 0).all()


@pytest.mark.parametrize("nonlinear", [False, True])
def test_regulariser_reaches_queries_and_keys_only(nonlinear):
    mixer = mixer_of("qplex", weighted_head=True, nonlinear=nonlinear)
    params, args = random_params(mixer), inputs()

    def total(params, chosen):
        return mixer.apply(params, chosen, *args[1:]).regulariser.sum()

    gradient, of_chosen = jax.jit(jax.grad(total, argnums=(0, 1)))(params, args[0])
    for name, branch in gradient["params"].items():
        reached = any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(branch))
        assert reached == (name in {"query", "key", "from_state"}), name
    queries = mixer.heads * mixer.hyper_hidden
    np.testing.assert_array_equal(gradient["params"]["from_state"]["kernel"][:, queries:], 0)
    assert bool(np.abs(of_chosen).max() > 0) == nonlinear


# One signature


ALL = [("none", {}), ("vdn", {}), ("qmix", {}), *(("qplex", options) for options in OPTIONS)]


@pytest.mark.parametrize("kind, options", ALL)
def test_any_leading_axes(kind, options):
    mixer, n_agents = mixer_of(kind, **options), 1 if kind == "none" else N
    params = random_params(mixer)
    for lead in [(), (5,), (2, 3), (2, 1, 3)]:
        out = jax.eval_shape(mixer.apply, params, *inputs(lead=lead, n_agents=n_agents))
        assert out.q_tot.shape == out.regulariser.shape == lead
        assert out.q_tot.dtype == out.regulariser.dtype == jnp.float32

    args = inputs(lead=(2, 3), n_agents=n_agents)
    flat = [x.reshape(6, *x.shape[2:]) for x in args]
    for a, b in zip(apply(mixer, params, *args), apply(mixer, params, *flat), strict=True):
        np.testing.assert_allclose(a.reshape(6), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind, options", ALL)
def test_compiled_equals_not_compiled(kind, options):
    mixer = mixer_of(kind, **options)
    args = inputs(n_agents=1 if kind == "none" else N)
    params = random_params(mixer)
    for a, b in zip(mixer.apply(params, *args), apply(mixer, params, *args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["vdn", "qmix", "none"])
def test_only_qplex_has_a_regulariser(kind):
    args = inputs(n_agents=1 if kind == "none" else N)
    mixer = mixer_of(kind)
    out = apply(mixer, random_params(mixer), *args)
    np.testing.assert_array_equal(out.regulariser, np.zeros(6))


def test_actions_may_be_boolean():
    mixer = mixer_of("qplex")
    chosen, greedy, onehot, state = inputs()
    params = random_params(mixer)
    np.testing.assert_array_equal(
        apply(mixer, params, chosen, greedy, onehot.astype(bool), state).q_tot,
        apply(mixer, params, chosen, greedy, onehot, state).q_tot,
    )


def test_make_mixer_builds_each_kind():
    kinds = {"none": Independent, "vdn": VDN, "qmix": QMIX, "qplex": QPLEX}
    for kind, module in kinds.items():
        assert type(make_mixer(MixerConfig(kind=kind), env_spec())) is module  # type: ignore[arg-type]
    assert type(make_mixer(MixerConfig(kind="none"), env_spec(1))) is Single


def test_make_mixer_refuses_what_cannot_work():
    with pytest.raises(ConfigError, match="unit_dim"):
        make_mixer(MixerConfig(kind="qplex"), env_spec(unit_dim=0))
    with pytest.raises(ConfigError, match="unit_dim"):
        make_mixer(MixerConfig(kind="qplex"), env_spec(unit_dim=7))


def test_wrong_shapes_are_refused_instead_of_broadcast():
    mixer = mixer_of("qplex")
    params, (chosen, greedy, onehot, state) = random_params(mixer), inputs()
    with pytest.raises(AssertionError, match=r"shape \(\d+, 1\)"):
        mixer.apply(params, chosen, greedy[:, :1], onehot, state)
    with pytest.raises(AssertionError, match=r"shape \(\d+, \d+, 2\)"):
        mixer.apply(params, chosen, greedy, onehot[..., :2], state)


# Initial weights


def assert_uniform(x, bound):
    x = np.asarray(x)
    assert np.abs(x).max() <= bound
    assert np.abs(x).max() > 0.9 * bound
    if x.size > 500:
        np.testing.assert_allclose(x.std(), bound / np.sqrt(3), rtol=0.1)


def test_linear_is_a_product_and_a_bias_that_start_as_in_pytorch():
    x = np.random.default_rng(0).normal(size=(6, 50)).astype(np.float32)
    layer = Linear(300)
    params = jax.jit(layer.init)(jax.random.key(0), x)
    kernel, bias = (np.asarray(params["params"][name]) for name in ("kernel", "bias"))
    assert_uniform(kernel, 50**-0.5)
    assert_uniform(bias, 50**-0.5)
    assert abs(np.corrcoef(kernel[0], bias)[0, 1]) < 0.2  # drawn with different keys
    np.testing.assert_allclose(layer.apply(params, x), x @ kernel + bias, rtol=1e-5, atol=1e-6)
    without = jax.eval_shape(Linear(3, use_bias=False).init, jax.random.key(0), x)
    assert without["params"].keys() == {"kernel"}


def test_layers_side_by_side_keep_their_own_fan_in():
    mixer = mixer_of("qplex", weighted_head=True)
    params = jax.jit(mixer.init)(jax.random.key(0), *inputs())["params"]
    fan_in = {"from_state": S, "action": S + N * A, "value": 32, "head_weight": 64}
    for name, size in fan_in.items():
        assert_uniform(params[name]["kernel"], size**-0.5)
        assert np.abs(params[name]["bias"]).max() <= size**-0.5
    assert_uniform(params["query"], 64**-0.5)
    assert_uniform(params["key"], U**-0.5)
