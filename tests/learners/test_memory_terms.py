"""The memory's terms: what they add, where they add nothing, and which terms a configuration switches on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emu.errors import ConfigError
from emu.learners.build import build_terms
from emu.learners.terms.episodic import EllipticalBonus, EpisodicControl, EpisodicIncentive

from . import cases, oracles
from .cases import B, T


def context(padding=0.0):
    return cases.context_of(cases.batch(padding=padding), recall=cases.recall())


def next_values():
    return np.random.default_rng(7).normal(size=(T, B)).astype(np.float32)


def each_episode():
    """Episodes with what the memory knows of them, and the column they have in a (T, B) array."""
    batch, recall = cases.batch(), cases.recall()
    for row, ep in enumerate(oracles.episodes(batch)):
        steps = slice(0, len(ep.reward))
        yield ep, type(recall)(*(x[row, steps] for x in recall)), (steps, row)


def test_the_incentive_is_the_oracles_step_by_step():
    bonus, values = EpisodicIncentive(0.9).target((), context(), next_values()), next_values()
    for ep, recall, place in each_episode():
        np.testing.assert_allclose(bonus[place], oracles.incentives(recall, values[place], ep, 0.9), rtol=1e-5)


def test_the_incentive_is_never_negative_and_zero_where_nothing_is_found_or_nothing_follows():
    bonus, c = np.asarray(EpisodicIncentive(0.9).target((), context(), next_values())), context()
    assert (bonus >= 0).all() and (bonus > 0).any()
    assert (bonus[~np.asarray(c.recall.found)] == 0).all()
    assert (bonus[np.asarray(c.batch.terminated)] == 0).all()


def test_the_incentive_still_counts_at_a_truncated_step():
    c = context()
    sure = c.recall._replace(
        found=np.ones((T, B), bool), ratio=np.ones((T, B), np.float32), best_return=np.full((T, B), 9, np.float32)
    )
    bonus = np.asarray(EpisodicIncentive(0.9).target((), c.replace(recall=sure), next_values()))
    assert (bonus[np.asarray(c.batch.truncated)] > 0).all()


def test_the_optimistic_incentive_trusts_every_desirable_memory_fully():
    c, values = context(), next_values()
    bonus = EpisodicIncentive(0.9, optimistic=True).target((), c, values)
    gap = np.maximum(0, np.asarray(c.recall.best_return) - values)
    counts = np.asarray(c.recall.desirable) & ~np.asarray(c.batch.terminated)
    np.testing.assert_allclose(bonus, np.where(counts, 0.9 * gap, 0), rtol=1e-5)


@pytest.mark.parametrize(("step", "share"), [(0, 1.0), (50_000, 0.75), (150_000, 0.25), (200_000, 0.0), (10**9, 0.0)])
def test_the_incentive_fades_linearly_over_the_steps_it_is_given(step, share):
    c, values = context().replace(step=jnp.int32(step)), next_values()
    whole = np.asarray(EpisodicIncentive(0.9).target((), c, values))
    faded = np.asarray(EpisodicIncentive(0.9, fade_steps=200_000).target((), c, values))
    np.testing.assert_allclose(faded, share * whole, rtol=1e-3)
    assert (whole > 0).any()


def test_a_fading_incentive_is_a_setting():
    (term,) = build_terms(cases.config(memory__use="incentive", memory__incentive_steps=5), cases.SPEC)
    assert isinstance(term, EpisodicIncentive) and term.fade_steps == 5


def test_episodic_control_is_the_oracles_mean_over_real_steps():
    taken = next_values()
    losses = [oracles.control_losses(recall, taken[place], ep, 0.9, 0.1) for ep, recall, place in each_episode()]
    actual = EpisodicControl(0.9, 0.1).loss((), context(padding=9.0), taken)
    np.testing.assert_allclose(actual, np.mean(np.concatenate(losses)), rtol=1e-5)


def test_episodic_control_pulls_only_at_real_steps_whose_next_state_is_found():
    c = context()
    pull = jax.grad(lambda q: EpisodicControl(0.9, 0.1).loss((), c, q))(jnp.asarray(next_values()))
    np.testing.assert_array_equal(np.asarray(pull) != 0, np.asarray(c.recall.found) & np.asarray(c.batch.filled))


def test_the_elliptical_bonus_is_the_oracles_and_starts_anew_with_every_episode():
    reward = EllipticalBonus(0.01, 0.1).reward((), context(padding=9.0))
    for _, recall, place in each_episode():
        expected = np.multiply(0.01, oracles.elliptical_bonuses(recall.embedding, 0.1))
        np.testing.assert_allclose(reward[place], expected, rtol=1e-4)


def test_the_hit_rate_counts_real_steps_only():
    learner, batch, recall = cases.learner_with_every_term(), cases.batch(), cases.recall()
    _, metrics = cases.updated(learner, cases.started(learner), batch, recall=[recall])
    for name in ("incentive_hit_rate", "control_hit_rate"):
        np.testing.assert_allclose(metrics[name][0], recall.found[batch.filled].mean(), rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"memory__use": "incentive"}, ["incentive"]),
        ({"memory__use": "control", "curiosity__scale": 0.001}, ["curiosity", "control"]),
        ({"agent__own_heads": True}, ["own_heads"]),
        ({"agent__own_heads": True, "diversity__beta": 0.1}, ["own_heads", "diversity"]),
        ({"elliptical__scale": 0.01}, ["elliptical"]),
    ],
)
def test_a_configuration_switches_on_its_terms_and_no_others(changes, names):
    assert [term.name for term in build_terms(cases.config(**changes), cases.SPEC)] == names


def test_the_elliptical_bonus_wants_a_trained_embedder():
    with pytest.raises(ConfigError, match="trained embedder"):
        cases.config(elliptical__scale=0.01, memory__embedder__kind="random")
