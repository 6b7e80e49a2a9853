"""MAPPO (Yu et al., 2022): a recurrent policy shared by the team, and a recurrent value of the state to judge it by.

    δ_t = r_t + γ (1 - terminated_t) V(s_t+1) - V(s_t)          Â_t = Σ_k (γλ)^k δ_t+k          G_t = Â_t + V(s_t)
    L_π = -mean min(ρ Â, clip(ρ, 1 ± c) Â) - β mean entropy,     ρ = π(a_t | o_≤t) / π_then(a_t | o_≤t)
    L_V = mean max(huber(v - g), huber(v_then + clip(v - v_then, ±c) - g))

One update takes a batch of the newest episodes, judges it once (values, advantages, returns), and then makes `epochs`
gradient steps on it; no episode is used again. v and g are V and G in units of all returns seen so far: their running
mean and standard deviation, without PopArt's correction of the last layer. Advantages are brought to mean 0 and
deviation 1 over the batch. An agent with one available action has nothing to decide (a dead one, for example) and
counts in no mean of L_π.

IPPO (`ppo.critic` own) replaces V(s) by a value for every agent of what that agent saw itself: each has its own errors,
advantages and returns from the same reward, or from rewards of their own (`EnvSpec.own_rewards`).

π_then is what the action was drawn from, which is kept with the action. Recomputing it at the update would be wrong for
an episode during which the parameters changed: chunks of collecting and updates take turns whatever the episodes do.
v_then only says where the network stood before the epochs, so it is recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from emu.config import Config
from emu.devices import DATA, Devices, sum_over_devices
from emu.envs.spec import EnvSpec
from emu.learners.base import Learner
from emu.learners.td import clip_by_torch_norm, masked, pick
from emu.learners.terms.base import Context, Term
from emu.nets.agents import RecurrentAgent, make_agent
from emu.types import Array, Batch, PyTree

ADAM_EPS = 1e-5
LEAST_VARIANCE = 1e-2  # of returns; where they hardly differ, values are not blown up
HEAD_START = 0.01  # of the usual weights: a new policy is nearly uniform


class ReturnScale(NamedTuple):
    """Number, mean and variance of all returns seen so far. All scalars."""

    count: Array
    mean: Array
    variance: Array

    @classmethod
    def new(cls) -> ReturnScale:
        return cls(jnp.float32(0), jnp.float32(0), jnp.float32(1))

    def seen(self, returns: Array, mask: Array) -> ReturnScale:
        """With the returns of one more batch, of which every device has a share."""
        count = jax.lax.psum(mask.sum(), DATA)
        mean = jax.lax.psum((returns * mask).sum(), DATA) / jnp.maximum(count, 1.0)
        squares = jax.lax.psum(((returns - mean) ** 2 * mask).sum(), DATA)
        total = jnp.maximum(self.count + count, 1.0)
        step = mean - self.mean
        squares += self.variance * self.count + step**2 * self.count * count / total
        return ReturnScale(total, self.mean + step * count / total, squares / total)

    @property
    def deviation(self) -> Array:
        return jnp.sqrt(jnp.maximum(self.variance, LEAST_VARIANCE))

    def normal(self, value: Array) -> Array:
        return (value - self.mean) / self.deviation

    def natural(self, value: Array) -> Array:
        return value * self.deviation + self.mean


class MappoState(NamedTuple):
    params: dict[str, PyTree]  # "agent", "critic"
    optimiser: dict[str, PyTree]  # one for each
    scale: ReturnScale


class Carry(NamedTuple):
    hidden: Array  # (E, N, H)
    last_action: Array  # (E, N, A) one-hot, zeros at the start of an episode
    log_prob: Array  # (E, N) of the last action


class Judged(NamedTuple):
    """A batch and what all its epochs share; time-major."""

    batch: Batch
    last_action: Array  # (T, B, N, A) one-hot
    value: Array  # (T, B) normalised, before the first epoch; of own critics (T, B, N), as the next two
    target: Array  # (T, B) normalised returns
    advantage: Array  # (T, B) mean 0, deviation 1
    steps: Array  # (T, B) 1 where a real step is
    choices: Array  # (T, B, N) 1 where an agent could choose
    step_count: Array  # () of the whole batch (all devices)
    choice_count: Array

    def over_steps(self, values: Array) -> Array:
        """This device's share of the mean over real steps."""
        return (values * self.steps).sum() / self.step_count

    def over_choices(self, values: Array) -> Array:
        """This device's share of the mean over choices."""
        return (values * self.choices).sum() / self.choice_count


class MappoLearner(Learner):
    on_policy = True

    def __init__(self, config: Config, spec: EnvSpec, devices: Devices, terms: Sequence[Term] = ()) -> None:
        super().__init__(config, spec, devices, terms)
        self.ppo = config.ppo
        self.agent = make_agent(config.agent, spec.n_agents, spec.n_actions)
        # The critic is the same network with one output; the central one has one agent, which sees the state.
        self.central = config.ppo.critic == "central"
        judges, number = (1, False) if self.central else (spec.n_agents, config.agent.agent_id)
        self.critic = RecurrentAgent(judges, 1, config.agent.hidden, last_action=False, agent_id=number)
        self.optimiser = optax.chain(
            clip_by_torch_norm(self.config.max_grad_norm), optax.adam(self.config.learning_rate, eps=ADAM_EPS)
        )

    @classmethod
    def learns_independently(cls, config: Config) -> bool:
        return config.ppo.critic == "own"

    def init(self, key: Array) -> MappoState:
        agent_key, critic_key = jax.random.split(key)
        s, carry = self.spec, self.initial_carry(1)
        obs, state = jnp.zeros((1, s.n_agents, s.obs_dim)), jnp.zeros((1, 1, s.state_dim))
        agent = self.agent.init(agent_key, carry.hidden, obs, carry.last_action, method="step")
        seen, judges = state if self.central else obs, self.critic.n_agents
        critic = self.critic.init(critic_key, carry.hidden[:, :judges], seen, None, method="step")
        params = {"agent": jax.tree_util.tree_map_with_path(_with_small_head, agent), "critic": critic}
        optimiser = {name: self.optimiser.init(part) for name, part in params.items()}
        return MappoState(params, optimiser, ReturnScale.new())

    def policy(self, state: MappoState) -> PyTree:
        return state.params["agent"]

    def initial_carry(self, copies: int) -> Carry:
        shape = copies, self.spec.n_agents
        hidden, last_action = jnp.zeros((*shape, self.agent.hidden)), jnp.zeros((*shape, self.spec.n_actions))
        return Carry(hidden, last_action, jnp.zeros(shape))

    def act(
        self, policy: PyTree, carry: Carry, obs: Array, avail: Array, explore: Array, key: Array
    ) -> tuple[Array, Carry]:
        """The likeliest actions if `explore` is 0; else drawn from the policy, which explores by itself."""
        logits, hidden = self.agent.apply(policy, carry.hidden, obs, carry.last_action, method="step")
        log_policy = jax.nn.log_softmax(masked(logits, avail))
        drawn = jax.random.categorical(key, log_policy)
        action = jnp.where(explore > 0, drawn, log_policy.argmax(axis=-1)).astype(jnp.int32)
        return action, Carry(hidden, jax.nn.one_hot(action, self.spec.n_actions), pick(log_policy, action))

    def log_prob(self, carry: Carry) -> Array:
        return carry.log_prob

    def learn(self, state: MappoState, context: Context) -> tuple[MappoState, dict[str, Array]]:
        judged, scale, judgement = self._judge(state, context)

        def epoch(learned, _):
            params, optimiser = learned
            grads, parts = jax.grad(self._loss, has_aux=True)(params, judged)
            grads, parts = sum_over_devices((grads, parts))
            norms = {f"{name}_grad_norm": optax.global_norm(part) for name, part in grads.items()}
            return self._step(params, optimiser, grads), parts | norms

        (params, optimiser), parts = jax.lax.scan(epoch, (state.params, state.optimiser), None, length=self.ppo.epochs)
        means = {name: values.mean() for name, values in parts.items()}
        return MappoState(params, optimiser, scale), means | sum_over_devices(judgement)

    def _judge(self, state: MappoState, context: Context) -> tuple[Judged, ReturnScale, dict[str, Array]]:
        """The batch with its values, advantages and returns; the scale that has seen them; what to log of them."""
        batch, steps = context.batch, context.mask
        choices = steps[..., None] * (batch.avail[:-1].sum(axis=-1) > 1)
        counts = context.count, jnp.maximum(jax.lax.psum(choices.sum(), DATA), 1.0)

        normal = self._values(state.params["critic"], self._judged_by(batch), batch.filled.sum(axis=0) + 1)
        value = state.scale.natural(normal)
        advantage, returns = self._advantages(batch, value)
        scale = state.scale.seen(returns, steps if self.central else jnp.broadcast_to(steps[..., None], returns.shape))
        target = scale.normal(returns)
        advantage = standardised(advantage, choices.sum(axis=-1) if self.central else choices)

        onehot = jax.nn.one_hot(batch.action[:-1], self.spec.n_actions)
        last_action = jnp.concatenate([jnp.zeros((1, *onehot.shape[1:])), onehot])
        judged = Judged(batch, last_action, normal[:-1], target, advantage, steps, choices, *counts)
        logged = {"value": value[:-1], "target": returns}
        return judged, scale, {name: judged.over_steps(self._over_agents(x)) for name, x in logged.items()}

    def _loss(self, params: dict[str, PyTree], judged: Judged) -> tuple[Array, dict[str, Array]]:
        """Policy and value share no parameters, so one sum trains both."""
        batch, clip = judged.batch, self.ppo.clip
        lengths = batch.filled.sum(axis=0)
        logits = self.agent.apply(params["agent"], batch.obs[:-1], judged.last_action, lengths, method="unroll")[0]
        log_policy = jax.nn.log_softmax(masked(logits, batch.avail[:-1]))
        change = jnp.where(judged.choices > 0, pick(log_policy, batch.action) - batch.log_prob, 0.0)
        ratio = jnp.exp(change)
        advantage = judged.advantage[..., None] if self.central else judged.advantage
        policy_loss = judged.over_choices(clipped_policy_loss(ratio, advantage, clip))
        entropy = judged.over_choices(-(jnp.exp(log_policy) * log_policy).sum(axis=-1))

        value = self._values(params["critic"], self._judged_by(batch)[:-1], lengths)
        errors = clipped_value_loss(value, judged.value, judged.target, clip, self.ppo.huber)
        value_loss = judged.over_steps(self._over_agents(errors))
        loss = policy_loss - self.ppo.entropy * entropy + value_loss
        return loss, {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": judged.over_choices(ratio - 1.0 - change),
            "ratio_clipped": judged.over_choices(jnp.abs(ratio - 1.0) > clip),
        }

    def _step(self, params: dict, optimiser: dict, grads: dict) -> tuple[dict[str, PyTree], dict[str, PyTree]]:
        """One step of Adam for each network, each with its own limit to its gradient."""
        steps = {name: self.optimiser.update(grads[name], optimiser[name]) for name in params}
        moved = {name: optax.apply_updates(params[name], step) for name, (step, _) in steps.items()}
        return moved, {name: state for name, (_, state) in steps.items()}

    def _values(self, params: PyTree, seen: Array, lengths: Array) -> Array:
        """Normalised values of what is seen (T, B, S) or (T, B, N, O), each from all up to it: (T, B) or (T, B, N).

        `lengths` (B,) of the steps matter.
        """
        seen = seen[..., None, :] if self.central else seen
        values = self.critic.apply(params, seen, None, lengths, method="unroll")[0]
        return values[..., 0, 0] if self.central else values[..., 0]

    def _judged_by(self, batch: Batch) -> Array:
        """What the critic sees."""
        return batch.state if self.central else batch.obs

    def _advantages(self, batch: Batch, value: Array) -> tuple[Array, Array]:
        """Advantages and returns in the shape of the values: (T, B), or an agent at a time (T, B, N)."""

        def of_one(value: Array, reward: Array) -> tuple[Array, Array]:
            return gae(reward, batch.terminated, batch.filled, value, self.config.gamma, self.ppo.gae_lambda)

        if self.central:
            return of_one(value, batch.reward)
        axes = (-1, -1 if self.spec.own_rewards else None)
        return jax.vmap(of_one, in_axes=axes, out_axes=-1)(value, batch.reward)

    def _over_agents(self, values: Array) -> Array:
        """(T, B): the mean over the agents where each has a value of its own."""
        return values if self.central else values.mean(axis=-1)


def _with_small_head(path: tuple[Any, ...], weights: Array) -> Array:
    """Weights of a new policy's network: those of its head start small."""
    return HEAD_START * weights if any(getattr(part, "key", "") == "head" for part in path) else weights


def gae(
    reward: Array, terminated: Array, filled: Array, value: Array, gamma: float, gae_lambda: float
) -> tuple[Array, Array]:
    """Generalised advantages and the returns they stand for, (T, B); `value` is (T+1, B).

    A truncated end bootstraps, a terminated one does not. The padding has advantage 0, so that none of it gets into an
    episode.
    """
    chex.assert_equal_shape([reward, terminated, filled, value[1:]])
    following = jnp.where(terminated, 0.0, value[1:])
    error = jnp.where(filled, reward + gamma * following - value[:-1], 0.0)

    def back(later: Array, error: Array) -> tuple[Array, Array]:
        advantage = error + gamma * gae_lambda * later
        return advantage, advantage

    advantage = jax.lax.scan(back, jnp.zeros_like(error[0]), error, reverse=True)[1]
    return advantage, advantage + value[:-1]


def standardised(values: Array, weight: Array) -> Array:
    """Mean 0 and deviation 1 under the given weights, over all devices."""
    chex.assert_equal_shape([values, weight])
    total = jnp.maximum(jax.lax.psum(weight.sum(), DATA), 1.0)
    mean = jax.lax.psum((values * weight).sum(), DATA) / total
    variance = jax.lax.psum(((values - mean) ** 2 * weight).sum(), DATA) / total
    return (values - mean) / (jnp.sqrt(variance) + 1e-5)


def clipped_policy_loss(ratio: Array, advantage: Array, clip: float) -> Array:
    """The worse of two: so there is nothing to gain from moving a probability beyond the clip.

    `ratio` is (..., N), `advantage` the same or, shared by the agents, (..., 1).
    """
    chex.assert_equal_rank([ratio, advantage])
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def clipped_value_loss(value: Array, before: Array, target: Array, clip: float, delta: float) -> Array:
    """Huber's loss of the value or of the value held within the clip around what it was before, whichever is worse."""
    chex.assert_equal_shape([value, before, target])
    held = before + jnp.clip(value - before, -clip, clip)
    return jnp.maximum(*(optax.huber_loss(v - target, delta=delta) for v in (value, held)))
