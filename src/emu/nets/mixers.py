"""Mixers: from the agents' Q-values to the team's Q_tot. VDN, QMIX, QPLEX, and none at all.

All share one signature, so that a learner need not know which one it holds:

    mixer.apply(params, chosen, greedy, actions_onehot, state) -> MixerOutput(q_tot, regulariser)

    chosen          (..., N)     Q_i of the actions taken
    greedy          (..., N)     max Q_i over the available actions        (QPLEX only)
    actions_onehot  (..., N, A)  the actions taken                         (QPLEX only)
    state           (..., S)     the global state
    q_tot           (...,)       without a mixer (..., N): every agent has a value of its own
    regulariser     (...,)       to be averaged over the filled steps and added to the loss; 0 but for QPLEX

Layers that read the same input are one wide matrix product, split afterwards; leading axes are one inside.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from emu.config import MixerConfig
from emu.envs.spec import EnvSpec
from emu.errors import ConfigError, did_you_mean
from emu.nets.init import Linear, torch_linear
from emu.types import Array

TINY = 1e-10  # keeps QPLEX's weights above 0, as its authors do


class MixerOutput(NamedTuple):
    q_tot: Array  # (...,); (..., N) where nothing is mixed
    regulariser: Array  # (...,)


def _leading_axes_as_one(mix: Callable[..., MixerOutput]) -> Callable[..., MixerOutput]:
    """Matrix products are quicker on two axes than on three."""

    @functools.wraps(mix)
    def wrapped(self: nn.Module, chosen: Array, *others: Array) -> MixerOutput:
        lead = chosen.shape[:-1]
        flat = (x.reshape(math.prod(lead), *x.shape[len(lead) :]) for x in (chosen, *others))
        return MixerOutput(*(x.reshape(lead) for x in mix(self, *flat)))

    return wrapped


class Single(nn.Module):
    """No mixing: the only agent's Q is the team's."""

    @nn.compact
    def __call__(self, chosen: Array, greedy: Array, actions_onehot: Array, state: Array) -> MixerOutput:
        chex.assert_axis_dimension(chosen, -1, 1)
        return _plain(chosen[..., 0])


class Independent(nn.Module):
    """No mixing in a team: every agent's Q is a value of its own (independent Q-learning), so q_tot is (..., N)."""

    @nn.compact
    def __call__(self, chosen: Array, greedy: Array, actions_onehot: Array, state: Array) -> MixerOutput:
        return MixerOutput(chosen, jnp.zeros(chosen.shape[:-1], chosen.dtype))


class VDN(nn.Module):
    """Value decomposition networks (https://arxiv.org/abs/1706.05296): Q_tot = Σ Q_i."""

    @nn.compact
    def __call__(self, chosen: Array, greedy: Array, actions_onehot: Array, state: Array) -> MixerOutput:
        return _plain(chosen.sum(-1))


class QMIX(nn.Module):
    """QMIX (https://arxiv.org/abs/1803.11485): Q_tot = |w2(s)|·ELU(|W1(s)| Q + b(s)) + V(s).

    Hypernetworks give the weights; as they are not negative, Q_tot rises with every Q_i.
    """

    n_agents: int
    embed: int = 32
    hyper_hidden: int = 64

    @nn.compact
    @_leading_axes_as_one
    def __call__(self, chosen: Array, greedy: Array, actions_onehot: Array, state: Array) -> MixerOutput:
        chex.assert_shape(chosen, (..., self.n_agents))
        widths = (self.hyper_hidden, self.hyper_hidden, self.embed, self.embed)
        w1_hidden, w2_hidden, bias, value_hidden = _side_by_side(state, widths, "from_state")

        w1 = jnp.abs(Linear(self.n_agents * self.embed, name="w1")(nn.relu(w1_hidden)))
        w1 = w1.reshape(*w1.shape[:-1], self.n_agents, self.embed)
        w2 = jnp.abs(Linear(self.embed, name="w2")(nn.relu(w2_hidden)))
        value = Linear(1, name="value")(nn.relu(value_hidden))[..., 0]

        hidden = nn.elu(jnp.einsum("...n,...ne->...e", chosen, w1) + bias)
        return _plain((hidden * w2).sum(-1) + value)


class QPLEX(nn.Module):
    """QPLEX (https://arxiv.org/abs/2008.01062), duplex dueling in its authors' attention form.

    Transformation: Q_i' = w_i Q_i + V(s)/N, with w_i > 0 the attention that queries of the state pay to agent
    i's own features. Advantage: A_i = Q_i' - max Q_i' <= 0, its gradient stopped, with weights λ_i(s, a) > 0.

        Q_tot = Σ Q_i' + Σ (λ_i - 1) A_i

    In value that is Σ max Q_i' + Σ λ_i A_i: largest where every agent is greedy, whatever λ. The gradient
    reaches Q_i as in a weighted sum, by w_i. With `nonlinear`, w_i itself moves with the Q-values, so the
    joint greedy action need not be the individual ones any more; it is an option of the authors' code.
    """

    n_agents: int
    n_actions: int
    unit_dim: int  # agent i's own features are state[i * unit_dim : (i + 1) * unit_dim]
    embed: int = 32
    hyper_hidden: int = 64
    heads: int = 4
    kernels: int = 4
    weighted_head: bool = False
    nonlinear: bool = False
    importance_layers: int = 1
    attention_regulariser: float = 0.001

    @nn.compact
    @_leading_axes_as_one
    def __call__(self, chosen: Array, greedy: Array, actions_onehot: Array, state: Array) -> MixerOutput:
        self._check_shapes(chosen, greedy, actions_onehot, state)
        deep = self.importance_layers > 1
        widths = (
            self.heads * self.hyper_hidden,
            self.embed,
            self.hyper_hidden if deep else self.kernels,
            self.hyper_hidden if deep else self.kernels * self.n_agents,
            self.hyper_hidden if self.weighted_head else 0,
        )
        query_hidden, value_hidden, key, agents, head_hidden = _side_by_side(state, widths, "from_state")

        logits = self._attention_logits(nn.relu(query_hidden), chosen, state)  # (..., heads, N)
        attention = nn.softmax(logits / math.sqrt(self.embed), axis=-1)
        if self.weighted_head:
            attention *= jnp.abs(Linear(self.heads, name="head_weight")(nn.relu(head_hidden)))[..., None]
        weight = attention.sum(-2) + TINY
        value = Linear(1, name="value")(nn.relu(value_hidden))[..., 0]
        linear = (weight * chosen).sum(-1) + value

        advantage = jax.lax.stop_gradient(weight * (chosen - greedy))
        importance = self._importance(key, agents, actions_onehot, state)
        q_tot = linear + ((importance - 1.0) * advantage).sum(-1)
        return MixerOutput(q_tot, self.attention_regulariser * jnp.square(logits).mean((-2, -1)))

    def _attention_logits(self, query_hidden: Array, chosen: Array, state: Array) -> Array:
        """q_h · k_hi for every head and agent, (..., heads, N).

        Neither query nor key has a bias, so their two matrices are multiplied first: the keys are never formed.
        """
        units = state[..., : self.n_agents * self.unit_dim]
        units = units.reshape(*units.shape[:-1], self.n_agents, self.unit_dim)
        if self.nonlinear:
            units = jnp.concatenate([units, chosen[..., None]], axis=-1)
        to_query = self.param("query", torch_linear, (self.heads, self.hyper_hidden, self.embed))
        to_key = self.param("key", torch_linear, (self.heads, units.shape[-1], self.embed))
        products = jnp.einsum("hie,hue->hiu", to_query, to_key)
        hiddens = jnp.split(query_hidden, self.heads, axis=-1)
        logits = [
            jnp.einsum("...u,...nu->...n", hidden @ product, units)
            for hidden, product in zip(hiddens, products, strict=True)
        ]
        return jnp.stack(logits, axis=-2)

    def _importance(self, key: Array, agents: Array, actions_onehot: Array, state: Array) -> Array:
        """λ_i = Σ_k |key_k(s)| σ(agents_ki(s)) σ(action_ki(s, a)), (..., N). `key`, `agents`: their first layers."""
        joint_action = actions_onehot.reshape(*actions_onehot.shape[:-2], self.n_agents * self.n_actions)
        state_action = jnp.concatenate([state, joint_action.astype(state.dtype)], axis=-1)
        per_agent = self.kernels * self.n_agents
        first = Linear(self.hyper_hidden if self.importance_layers > 1 else per_agent, name="action")
        key = self._deeper(key, self.kernels, "key")
        agents = self._deeper(agents, per_agent, "agents")
        actions = self._deeper(first(state_action), per_agent, "action")
        gates = nn.sigmoid(agents) * nn.sigmoid(actions)
        gates = gates.reshape(*gates.shape[:-1], self.kernels, self.n_agents)
        return jnp.einsum("...k,...kn->...n", jnp.abs(key) + TINY, gates)

    def _deeper(self, x: Array, width: int, name: str) -> Array:
        """The layers after the first of one of λ's three networks: none by default."""
        for layer in range(2, self.importance_layers + 1):
            last = layer == self.importance_layers
            x = Linear(width if last else self.hyper_hidden, name=f"{name}_{layer}")(nn.relu(x))
        return x

    def _check_shapes(self, chosen: Array, greedy: Array, actions_onehot: Array, state: Array) -> None:
        chex.assert_shape([chosen, greedy], (..., self.n_agents))
        chex.assert_shape(actions_onehot, (..., self.n_agents, self.n_actions))
        chex.assert_axis_dimension_gteq(state, -1, self.n_agents * self.unit_dim)


def make_mixer(config: MixerConfig, spec: EnvSpec) -> Single | Independent | VDN | QMIX | QPLEX:
    """The mixer `config` asks for, in the sizes of the environment."""
    if config.kind == "none":
        return Single() if spec.n_agents == 1 else Independent()
    if config.kind == "vdn":
        return VDN()
    if config.kind == "qmix":
        return QMIX(spec.n_agents, config.embed, config.hyper_hidden)
    if config.kind == "qplex":
        if not 1 <= spec.unit_dim <= spec.state_dim // spec.n_agents:
            raise ConfigError(
                f"QPLEX reads {spec.n_agents} agents × {spec.unit_dim} own features (unit_dim) from the "
                f"front of the state, but the state of '{spec.name}' has {spec.state_dim} features: "
                "correct its specification, or choose qmix."
            )
        return QPLEX(
            spec.n_agents,
            spec.n_actions,
            spec.unit_dim,
            embed=config.embed,
            hyper_hidden=config.hyper_hidden,
            heads=config.heads,
            kernels=config.kernels,
            weighted_head=config.weighted_head,
            nonlinear=config.nonlinear,
            importance_layers=config.importance_layers,
            attention_regulariser=config.attention_regulariser,
        )
    raise ConfigError(
        f"No mixer is called '{config.kind}'. {did_you_mean(config.kind, ('vdn', 'qmix', 'qplex', 'none'))}"
    )


def _side_by_side(x: Array, widths: tuple[int, ...], name: str) -> list[Array]:
    """Linear layers of these widths that all read `x`, as one layer of the module that calls."""
    return jnp.split(Linear(sum(widths), name=name)(x), list(accumulate(widths))[:-1], axis=-1)


def _plain(q_tot: Array) -> MixerOutput:
    return MixerOutput(q_tot, jnp.zeros_like(q_tot))
