"""MAPPO against a slow oracle, and its promises: ends of episodes, masks, padding, devices, kept log-probabilities."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu import envs
from emu.config.presets import preset
from emu.devices import DATA, Devices
from emu.errors import ConfigError
from emu.learners.mappo import (
    MappoLearner,
    MappoState,
    ReturnScale,
    clipped_policy_loss,
    clipped_value_loss,
    gae,
    standardised,
)
from emu.play.compiled import Rollout
from emu.replay.episodes import Replay
from emu.run.metrics import read_rows
from emu.training.loop import Trainer
from emu.training.session import train
from toys import silent, tiny_config

from . import cases, oracles, ppo_oracles
from .cases import OBS, A, N, assert_trees_close, updated

EPOCHS = 2


@functools.cache
def mappo(devices: int = 2, critic: str = "central") -> MappoLearner:
    """Compiled once for all tests that need it, without the passes that only make it fast."""
    ppo = {"ppo__epochs": EPOCHS, "ppo__entropy": 0.1, "ppo__huber": 0.7, "ppo__critic": critic}
    config = cases.config(learner__kind="mappo", rollout__epsilon_end=1.0, **ppo)
    learner = MappoLearner(config, cases.SPEC, Devices.of(devices))
    quickly = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    learner.update = jax.jit(learner.update.__wrapped__, donate_argnums=0, compiler_options=quickly)
    return learner


def started(learner: MappoLearner) -> MappoState:
    state = cases.started(learner)
    return state._replace(scale=learner.shards.replicate(ReturnScale.new()))


def on_devices(function, *shares):
    """A function of every device's share; what it returns is the same on all."""
    return jax.tree.map(lambda x: x[0], jax.vmap(function, axis_name=DATA)(*shares))


# The pieces


@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_the_sums_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    length, rows, gamma, lam = rng.integers(1, 9), rng.integers(1, 4), rng.uniform(0.5, 1), rng.uniform(0, 1)
    reward, value = rng.normal(size=(length, rows)), rng.normal(size=(length + 1, rows))
    steps = rng.integers(1, length + 1, rows)
    filled = np.arange(length)[:, None] < steps
    terminated = (np.arange(length)[:, None] == steps - 1) & (rng.random(rows) < 0.5)  # the others are truncated
    got, returns = gae(reward, terminated, filled, value, gamma, lam)
    for row, count in enumerate(steps):
        parts = reward[:count, row], terminated[:count, row], value[: count + 1, row]
        expected = ppo_oracles.advantages(*parts, gamma, lam)
        np.testing.assert_allclose(got[:count, row], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(returns[:count, row], expected + value[:count, row], rtol=1e-4, atol=1e-5)
        assert not np.any(got[count:, row])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.1, 2.0, -2.2, -2.0),  # within the clip
        (1.3, 2.0, -2.4, 0.0),  # good, and likely enough already
        (0.7, 2.0, -1.4, -2.0),  # good, but has become unlikely: back
        (1.3, -2.0, 2.6, 2.0),  # bad, but has become likely: back
        (0.7, -2.0, 1.6, 0.0),  # bad, and unlikely enough already
    ],
)
def test_the_policy_gains_nothing_beyond_the_clip(ratio, advantage, loss, slope):
    value, grad = jax.value_and_grad(clipped_policy_loss)(jnp.float32(ratio), jnp.float32(advantage), 0.2)
    assert (float(value), float(grad)) == pytest.approx((loss, slope))


@pytest.mark.parametrize(
    ("value", "before", "target", "loss"),
    [
        (0.1, 0.0, 1.0, 0.5 * 0.9**2),  # within the clip: both alike
        (0.5, 0.0, 1.0, 0.5 * 0.8**2),  # moved beyond it: held at 0.2, which is worse
        (0.5, 0.0, -1.0, 0.5 * 1.5**2),  # moved away: its own error is worse
        (0.1, 0.0, 5.0, 2 * (4.9 - 1.0)),  # errors beyond 2 count linearly
    ],
)
def test_the_value_is_held_and_large_errors_count_linearly(value, before, target, loss):
    assert float(clipped_value_loss(*map(jnp.float32, (value, before, target)), 0.2, 2.0)) == pytest.approx(loss)


def test_the_scale_is_that_of_all_returns_seen_on_all_devices():
    rng, scale, seen = np.random.default_rng(0), ReturnScale.new(), []
    assert (scale.natural(3.0), scale.normal(3.0)) == (3.0, 3.0)
    for number in range(4):
        returns = rng.normal(100 * number, 1 + number, (2, 5, 3)).astype(np.float32)
        mask = (rng.random((2, 5, 3)) < 0.6).astype(np.float32)
        scale = on_devices(functools.partial(ReturnScale.seen, scale), returns, mask)
        seen += returns[mask > 0].tolist()
        np.testing.assert_allclose(scale, (len(seen), np.mean(seen), np.var(seen)), rtol=1e-4)
    np.testing.assert_allclose(scale.normal(scale.natural(0.3)), 0.3, rtol=1e-4)
    assert ReturnScale(jnp.float32(9), jnp.float32(1), jnp.float32(0)).deviation == pytest.approx(0.1)


def test_advantages_are_standardised_over_all_devices():
    rng = np.random.default_rng(1)
    values, weight = rng.normal(7, 3, (2, 6)), rng.integers(0, 3, (2, 6))
    got = jax.vmap(standardised, axis_name=DATA)(values, weight.astype(np.float32))
    repeated = np.repeat(values.ravel(), weight.ravel())
    np.testing.assert_allclose(got, (values - repeated.mean()) / repeated.std(), rtol=1e-3, atol=1e-4)


# The update


def oracle_update(params, moments, seen, batch, c, ppo, first_step):
    """One update in NumPy: parameters, Adam's moments, all returns seen, the mean of the metrics over the epochs."""
    eps = oracles.episodes(batch)
    judge = ppo_oracles.judge if ppo.critic == "central" else ppo_oracles.judge_own
    *judged, seen = judge(params, seen, eps, c.gamma, ppo.gae_lambda)
    noted = []

    def loss(params):
        parts = ppo_oracles.losses(params, eps, judged, ppo, A)
        return parts["policy_loss"] + parts["value_loss"] - ppo.entropy * parts["entropy"]

    for step in range(first_step, first_step + ppo.epochs):
        noted.append(ppo_oracles.losses(params, eps, judged, ppo, A))
        grads = oracles.gradient(loss, params)
        for name in params:
            clipped = oracles.clip(grads[name], c.max_grad_norm)
            params[name], *moments[name] = oracles.adam(
                params[name], clipped, *moments[name], step, c.learning_rate, eps=1e-5
            )
    return params, moments, seen, {name: np.mean([parts[name] for parts in noted]) for name in noted[0]}


@pytest.mark.parametrize("critic", ["central", "own"])
def test_two_updates_are_those_of_the_oracle(critic):
    learner = mappo(critic=critic)
    state, seen = started(learner), []
    params = oracles.as_float64(jax.device_get(state.params))
    moments = {name: [oracles.zeros(part), oracles.zeros(part)] for name, part in params.items()}
    for update in range(2):
        batch = cases.batch(seed=update, padding=9.0)
        params, moments, seen, expected = oracle_update(
            params, moments, seen, batch, learner.config, learner.ppo, 1 + update * EPOCHS
        )
        state, metrics = updated(learner, state, batch)
        for name, value in expected.items():
            np.testing.assert_allclose(metrics[name][0], value, rtol=1e-3, atol=1e-5, err_msg=name)
        assert_trees_close(state.params, params, rtol=0, atol=3e-5)  # a step is up to 5e-4
        np.testing.assert_allclose(state.scale, ppo_oracles.scale_of(seen), rtol=1e-4)


def test_padding_and_the_number_of_devices_change_nothing():
    learner = mappo()
    state = started(learner)
    clean, dirty = (updated(learner, state, cases.batch(padding=p)) for p in (0.0, 123.0))
    assert_trees_close(dirty, clean, rtol=0, atol=0)
    alone = updated(mappo(devices=1), state, cases.batch())
    assert learner.shards.size == 2
    assert_trees_close(jax.device_get(alone), jax.device_get(clean), rtol=1e-3, atol=1e-5)


def test_every_weight_learns_but_a_team_without_a_choice_learns_only_values():
    learner = mappo()
    before, batch = jax.device_get(started(learner)), cases.batch()
    after, _ = updated(learner, before, batch)
    moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), before.params, jax.device_get(after.params))
    assert all(jax.tree.leaves(moved))
    forced = np.zeros_like(batch.avail)
    forced[:, :-1][np.arange(A) == batch.action[..., None]] = True
    forced[:, -1] = True
    after, metrics = updated(learner, before, batch._replace(avail=forced))
    assert_trees_close(jax.device_get(after.params["agent"]), before.params["agent"], rtol=0, atol=0)
    assert metrics["entropy"] == metrics["kl"] == metrics["policy_loss"] == 0 < metrics["value_loss"]


# Acting


def test_actions_are_drawn_from_the_available_part_of_the_policy():
    learner = mappo()
    rows, rng = 2_000, np.random.default_rng(3)
    policy = learner.policy(jax.device_get(started(learner)))
    obs = np.tile(rng.normal(size=(1, N, OBS)).astype(np.float32), (rows, 1, 1))
    avail = np.tile(np.array([[True, False, True], [True, True, True]]), (rows, 1, 1))
    act = jax.jit(learner.act)
    action, carry = act(policy, learner.initial_carry(rows), obs, avail, 1.0, jax.random.PRNGKey(0))
    greedy, _ = act(policy, learner.initial_carry(rows), obs, avail, 0.0, jax.random.PRNGKey(1))
    logits = oracles.agent_q(oracles.as_float64(policy), obs[:1], np.zeros((0, N), int), A)[0][0]
    for agent in range(N):
        log_policy = ppo_oracles.log_softmax(logits[agent], avail[0, agent])
        shares = np.bincount(action[:, agent], minlength=A) / rows
        np.testing.assert_allclose(shares, np.exp(log_policy), atol=4 * 0.5 / np.sqrt(rows))
        np.testing.assert_allclose(carry.log_prob[:, agent], log_policy[action[:, agent]], rtol=1e-4, atol=1e-5)
        assert (greedy[:, agent] == log_policy.argmax()).all()


def test_an_episode_across_an_update_keeps_what_each_action_was_drawn_from():
    config = tiny_config("mappo")
    env, devices = envs.make(config.env), Devices.of(1)
    learner = MappoLearner(config, env.spec, devices)
    shapes = jax.eval_shape(learner.init, jax.random.PRNGKey(0))
    policies = [learner.policy(cases.filled(shapes, seed)) for seed in (0, 1)]
    rollout = Rollout(env, learner, 4, 3, devices)
    state, episodes = rollout.init(jax.random.PRNGKey(0)), []
    for chunk in range(8):
        state, ended, _ = rollout.collect(policies[chunk % 2], state, 1.0)
        episodes += [episode for episode in ended if episode.length > 4]
    step = jax.jit(functools.partial(learner.agent.apply, method="step"))
    assert len(episodes) >= 3

    def likelihoods(episode, begun):
        """Recomputed a step at a time by whoever played in that chunk."""
        carry = learner.initial_carry(1)
        hidden, last = carry.hidden, carry.last_action
        for t in range(episode.length):
            logits, hidden = step(policies[(begun + t) // 3 % 2], hidden, episode.obs[None, t], last)
            last = jax.nn.one_hot(episode.action[None, t], env.spec.n_actions)
            log_policy = [ppo_oracles.log_softmax(np.asarray(logits[0, i]), episode.avail[t, i]) for i in range(2)]
            yield [log_policy[i][episode.action[t, i]] for i in range(2)]

    for episode in episodes:  # when within two chunks it began is not known: exactly one beginning fits
        fits = [np.allclose(list(likelihoods(episode, begun)), episode.log_prob, atol=1e-4) for begun in range(6)]
        assert sum(fits) == 1


# In the loop


def test_every_episode_is_used_once_and_nothing_is_compiled_twice(tmp_path, monkeypatch):
    taken, take = [], Replay.take
    monkeypatch.setattr(Replay, "take", lambda self, size: taken.append(take(self, size)) or taken[-1])
    trainer = Trainer(tiny_config("mappo", **{"learner.length_buckets": 2}), tmp_path, silent())
    trainer.run()
    used = [id(episode) for batch in taken for episode in batch]
    assert len(set(used)) == len(used) == 4 * trainer.counters.updates
    assert len(trainer.replay) == trainer.counters.episodes - len(used) < 4
    assert 1 <= trainer.learner.update._cache_size() <= len(trainer.replay.lengths) == 2
    assert trainer.rollout._run._cache_size() == trainer.evaluator._run._cache_size() == 1


@pytest.mark.parametrize("env", ["gridworld/tiny", "pymarl:host_envs:TwoPaths"])
def test_a_policy_that_does_not_move_has_ratios_of_one(tmp_path, env):
    """What was kept while collecting, compiled or in workers, is what the update computes for the same parameters."""
    changes = {"steps": 200, "learner.learning_rate": 1e-12, "rollout.workers": 1}
    train(tiny_config("mappo", env, **changes), tmp_path / "run", silent())
    rows = [row for row in read_rows(tmp_path / "run") if "kl" in row]
    assert rows and all(abs(row["kl"]) < 1e-6 and row["ratio_clipped"] == 0 for row in rows)
    assert rows[-1]["entropy"] > 0.5  # a new policy is nearly uniform


def test_what_mappo_cannot_use_is_refused(tmp_path):
    for change in ({"rollout.epsilon_end": 0.0}, {"replay.unit": "steps"}):
        with pytest.raises(ConfigError, match=r"leave rollout\.epsilon_end at 1, replay\.unit at episodes"):
            tiny_config("mappo", **change)
    with pytest.raises(ConfigError, match="switch off incentive"):
        Trainer(tiny_config("mappo", **{"memory.use": "incentive"}), tmp_path, silent())


@pytest.mark.parametrize(
    ("task", "epochs", "clip"),
    [("3m", 15, 0.2), ("3s_vs_5z", 15, 0.05), ("5m_vs_6m", 10, 0.05), ("3s5z", 5, 0.2), ("MMM2", 5, 0.2)],
)
def test_tasks_have_the_epochs_and_clips_of_the_public_scripts(task, epochs, clip):
    config = preset("mappo", f"smac/{task}")
    assert (config.ppo.epochs, config.ppo.clip) == (epochs, clip)
    assert config.learner.kind == "mappo" and config.rollout.epsilon_start == config.rollout.epsilon_end == 1.0
