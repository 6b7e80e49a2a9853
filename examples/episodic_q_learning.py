"""Add EMU's episodic incentive to a Q-learner that knows nothing of this package: numpy only, no JAX, one file.

The task: a combination lock. Six doors in a row, four buttons each, one of them right; a wrong button leads back to
the start. Only opening the last door pays, 10. The state is a noisy 16-number picture of the door one stands at, so
exact states never repeat: similar ones must be recognised. A win is rare at first, and one-step Q-learning carries it
back door by door; the memory knows the return of every door on the way at once.

    python examples/episodic_q_learning.py              # both learners, a table
    python examples/episodic_q_learning.py --seeds 10
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

from emu.memory import EpisodicMemory, episodic_incentive

DOORS, BUTTONS, LIMIT, GAMMA = 6, 4, 60, 0.97


class Lock:
    """The environment: `reset` and `step`, as in any other trainer."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.right = self.rng.integers(BUTTONS, size=DOORS)
        self.pictures = self.rng.normal(size=(DOORS + 1, 16))

    def reset(self) -> np.ndarray:
        self.door, self.time = 0, 0
        return self._state()

    def _state(self) -> np.ndarray:
        return (self.pictures[self.door] + 0.001 * self.rng.normal(size=16)).astype(np.float32)

    def step(self, button: int) -> tuple[np.ndarray, float, bool, bool]:
        self.time += 1
        self.door = self.door + 1 if button == self.right[self.door] else 0
        won = self.door == DOORS
        return self._state(), 10.0 * won, won, self.time >= LIMIT


class Episode(NamedTuple):
    """All that the memory asks of an episode: T+1 states, T rewards, whether the goal was reached."""

    state: np.ndarray
    reward: np.ndarray
    won: bool


class QLearner:
    """A plain Q-table over rounded features, trained on replayed transitions. Nothing here is about memory."""

    def __init__(self, pictures: np.ndarray, seed: int) -> None:
        self.pictures, self.rng = pictures, np.random.default_rng(seed)
        self.table = np.zeros((DOORS + 1, BUTTONS))

    def row(self, states: np.ndarray) -> np.ndarray:
        return np.argmin(((states[:, None] - self.pictures[None]) ** 2).sum(-1), axis=1)

    def act(self, state: np.ndarray, epsilon: float) -> int:
        if self.rng.random() < epsilon:
            return int(self.rng.integers(BUTTONS))
        values = self.table[self.row(state[None])[0]]
        return int(self.rng.choice(np.flatnonzero(values == values.max())))

    def value(self, states: np.ndarray) -> np.ndarray:
        return self.table[self.row(states)].max(axis=1)

    def learn(self, states: np.ndarray, actions: np.ndarray, targets: np.ndarray, rate: float = 0.2) -> None:
        for row, action, target in zip(self.row(states), actions, targets, strict=True):
            self.table[row, action] += rate * (target - self.table[row, action])


def train(seed: int, episodes: int, with_memory: bool) -> int:
    """Returns how many episodes were won."""
    lock, rng = Lock(seed), np.random.default_rng(seed + 1)
    learner = QLearner(lock.pictures, seed)
    memory = EpisodicMemory(state_dim=16, radius=0.02, capacity=20_000, gamma=GAMMA)  # added: the memory
    replay: list[tuple] = []
    wins = []
    for number in range(episodes):
        epsilon = max(0.05, 1 - 2 * number / episodes)
        states, rewards, actions, over, won = [lock.reset()], [], [], False, False
        while not over:
            actions.append(learner.act(states[-1], epsilon))
            state, reward, won, truncated = lock.step(actions[-1])
            replay.append((states[-1], actions[-1], reward, state, won, len(actions)))
            states.append(state)
            rewards.append(reward)
            over = won or truncated
        wins.append(won)
        memory.update([Episode(np.stack(states), np.array(rewards), won)])  # added: every finished episode
        if number % 50 == 49:
            memory.reembed()  # added: keep the keys normalised

        batch = [replay[i] for i in rng.integers(len(replay), size=64)]
        s, a, r, s2, ended, t2 = (np.array(column) for column in zip(*batch, strict=True))
        next_value = learner.value(s2)
        target = r + GAMMA * np.where(ended, 0, next_value)
        if with_memory:  # added: what the memory says of the next states, as a reward
            target = target + episodic_incentive(memory.recall(s2, t2), next_value, ended, GAMMA)
        learner.learn(s, a, target)
    return sum(wins)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=600)
    options = parser.parse_args()
    for name, with_memory in (("Q-learning", False), ("with the episodic incentive", True)):
        won = [train(seed, options.episodes, with_memory) for seed in range(options.seeds)]
        print(f"{name:>28}: won {np.mean(won):4.0f} of {options.episodes} episodes (by seed: {won})")


if __name__ == "__main__":
    main()
