"""The random streams of a seed, pinned: a resumed run must draw what it would have drawn."""

import subprocess
import sys

import jax
import numpy as np

from emu import seeds


def test_seeds_differ_by_every_word_and_fit_31_bits():
    made = {seeds.seed_of(run, copy, episode) for run in range(8) for copy in range(8) for episode in range(8)}
    assert len(made) == 512 and all(0 <= seed < 2**31 for seed in made)


def test_streams_are_those_they_have_always_been():
    """Written out once more, as the places that used to draw them did."""

    def philox(seed, *counter):
        return np.random.Generator(np.random.Philox(key=seed, counter=list(counter)))

    key = jax.random.PRNGKey(9)
    for ours, theirs in (
        (seeds.training_keys(9), jax.random.split(key, 2)),
        (seeds.embedder_init(9), jax.random.PRNGKey(9 ^ 0xE3B)),
        (seeds.embedder_training(9, 4), jax.random.fold_in(key, 4)),
        (seeds.embedder_sample(9, 4).random(5), philox(9, 1, 0, 0, 4).random(5)),
        (seeds.snapshot_sample(9, 300).random(5), philox(9, 2, 0, 0, 300).random(5)),
        (seeds.snapshot_episode(9, 300).keys()[0], jax.random.fold_in(jax.random.PRNGKey(9 ^ 0x54A9), 300)),
        (
            seeds.evaluation_episodes(9, 2, 3).keys(),
            jax.random.split(jax.random.fold_in(jax.random.PRNGKey(9 ^ 0x7E57), 2), 3),
        ),
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert seeds.evaluation_episodes(9, 2, 3).numbers() == [seeds.seed_of(9, 0x7E57, 2, e) for e in range(3)]
    assert seeds.rollout_episode(np.array([1, 2], np.uint32), 3, 4) == seeds.seed_of(1, 2, 3, 4)
    assert seeds.replay_draw(9, 4).integers(10**9) == philox_of_key(9, 4).integers(10**9)


def philox_of_key(*words):
    return np.random.Generator(np.random.Philox(key=np.array(words, np.uint64)))


def test_an_evaluation_of_more_episodes_begins_with_those_of_a_smaller_one():
    few, many = (seeds.evaluation_episodes(1, 0, count) for count in (3, 5))
    assert many.numbers()[:3] == few.numbers() == many.rows(3)


def test_whole_numbers_need_no_jax():
    use = "seeds.evaluation_episodes(1, 2, 3).numbers()"
    code = f"import sys; from emu import seeds; {use}; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
