"""Scripted players of Python environments."""

import numpy as np
import pytest

from emu.envs import scripted as players
from emu.envs.spec import View
from emu.errors import EnvError
from host_envs import LIMIT, HostCounting


def test_a_random_team_takes_every_available_action_and_no_other():
    avail = np.array([[True, False, True], [False, True, False]])
    rng = np.random.default_rng(0)
    view = View(np.zeros((2, 1)), np.zeros(1), avail)
    taken = {tuple(players.random(view, rng).tolist()) for _ in range(40)}
    assert taken == {(0, 1), (2, 1)}


def test_a_summary_counts_lengths_returns_and_wins():
    class Noted(HostCounting):
        def __init__(self):
            super().__init__()
            self.names = []

        def reset(self, seed):
            view = super().reset(seed)
            self.names.append(self.name)
            return view

    env = Noted()
    summary = players.play(env, "random", 20, seed=3)
    lengths = np.array([1 + name % LIMIT for name in env.names])
    returns = [sum(name + 0.125 * t for t in range(length)) for name, length in zip(env.names, lengths, strict=True)]
    assert len(set(env.names)) > 5
    assert summary["length_mean"] == pytest.approx(lengths.mean())
    assert summary["length_std"] == pytest.approx(lengths.std())
    assert summary["return_mean"] == pytest.approx(np.mean(returns))
    assert summary["win_rate"] == pytest.approx(np.mean([name % 2 for name in env.names]))


def test_what_cannot_be_played_is_explained():
    with pytest.raises(EnvError, match="Did you mean 'random'"):
        players.play(HostCounting(), "randm", 1)
    with pytest.raises(EnvError, match="at least 1, not 0"):
        players.play(HostCounting(), "random", 0)
