"""The episodic memory inside the loop: what it learns from, when its embedder is trained, what a batch recalls.

Episodes go in as they finish; a batch of (U, B, T+1, S) states gets a `Recall` of leading shape (U, B, T). The memory
itself (`emu.memory`) knows nothing of environments, batches or environment steps; this module connects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax

from emu.config import Config
from emu.config.build import settings_of
from emu.envs.spec import EnvSpec
from emu.errors import CheckpointError, ConfigError
from emu.memory import EpisodicMemory, Recall
from emu.memory.embedders import Embedder
from emu.memory.options import KINDS
from emu.registry import Registry
from emu.seeds import embedder_init, embedder_sample, embedder_training
from emu.types import Batch, Episode, PyTree

EMBEDDERS: Registry[Embedder] = Registry("embedder", "emu.memory.embedders:Embedder", "memory.embedder.kind")
for _kind in KINDS:
    EMBEDDERS.register(_kind, Embedder)


class TrainingMemory:
    """Feeds the memory, trains its embedder every `embedder.interval` steps, and answers for whole batches."""

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        m = config.memory
        if not spec.has_goal and m.return_threshold is None and m.return_quantile is None and not m.rejudge:
            raise ConfigError(
                f"Environment '{spec.name}' has no goal: say with memory.return_threshold from which return on an "
                "episode is desirable, or let memory.return_quantile or memory.rejudge find out."
            )
        self.interval, self.rejudges, self.seed = m.embedder.interval, m.rejudge, config.seed
        embedder = EMBEDDERS.find(m.embedder.kind)
        settings = settings_of(embedder, m.embedder.settings, "memory.embedder.settings")
        self.embedder = embedder(spec.state_dim, spec.episode_limit, m.key_dim, m.embedder, settings)
        self.state: PyTree = self.embedder.init(embedder_init(config.seed))
        encode = self.embedder.encoder(self.state)
        self.memory = EpisodicMemory(spec.state_dim, m, gamma=config.learner.gamma, encode=encode)
        self.trainings = 0  # embedder intervals that have been dealt with

    def remember(self, episodes: Sequence[Episode]) -> None:
        self.memory.update(episodes)

    def recall(self, batches: Batch) -> Recall:
        """What the memory knows of every next state of (U, B, T+1, S) batches; nothing for the padding."""
        return self.memory.recall(batches.state[:, :, 1:], batches.time + 1, batches.filled)

    def train_if_due(self, step: int) -> dict[str, float] | None:
        """Once every interval: train the embedder on samples of the memory, then re-embed and re-index everything.

        A fixed embedder, or one that still waits for `min_entries` memories, is not trained: keys and index follow.
        """
        if step // self.interval <= self.trainings or not len(self.memory):
            return None
        self.trainings = step // self.interval
        if self.rejudges:
            self.memory.rejudge()
        if self.embedder.trainable and len(self.memory) >= self.embedder.options.min_entries:
            return self._train_embedder()
        self.memory.reembed()
        return {}

    def _train_embedder(self) -> dict[str, float]:
        rng = embedder_sample(self.seed, self.trainings)
        states, times, returns = self.memory.sample(self.embedder.options.samples, rng)
        key = embedder_training(self.seed, self.trainings)
        self.state, metrics = self.embedder.train(self.state, states, times, returns, key)
        self.memory.reembed(self.embedder.encoder(self.state))
        return {f"embedder_{name}": float(value) for name, value in metrics.items()}

    def stats(self) -> dict[str, float]:
        threshold = self.memory.judge.current()
        judged = {} if threshold is None else {"memory_return_threshold": threshold}
        return {f"memory_{name}": value for name, value in self.memory.stats().items()} | judged

    def save(self, folder: Path) -> None:
        self.memory.save(folder)

    def load(self, folder: Path, state: PyTree, trainings: int) -> None:
        self.state, self.trainings = jax.device_put(state), trainings
        self.memory.encode = self.embedder.encoder(self.state)
        try:
            self.memory.load(folder)
        except RecursionError as error:
            raise CheckpointError(f"The memory in {folder} cannot be read: it is nested too deeply.") from error
