"""How an episodic memory and its embedder behave: every option once, with its bounds, for libraries and runs alike."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from emu.bounds import Count, NotNegative, Options, Positive, Share, Within, check
from emu.errors import ConfigError, did_you_mean

KINDS = ("random", "embnet", "dcae")
LossCase = Literal["reconstruction_no_time", "reconstruction_time", "return_only", "both"]


@dataclasses.dataclass(frozen=True)
class EmbedderOptions(Options, group="memory.embedder"):
    """What turns a state into the memory's key, and how it is trained."""

    kind: str = "dcae"  # random: projection; embnet, dcae: networks that predict the return; or module:Name
    interval: Count = 10_000  # t_emb: steps between trainings (1,000 in the paper, 10,000 in the authors' code)
    min_entries: Count = 1  # memories that there must be before the first training (the authors' code: 102,400)
    samples: Count = 102_400  # N: memories per training
    batch_size: Count = 1_024  # B: memories per gradient step
    learning_rate: Positive = 5e-4  # of the embedder's optimiser
    max_grad_norm: Positive = 10.0  # gradients longer than this are scaled down to it
    reconstruction_weight: NotNegative = 0.1  # lambda_rcon
    loss_case: LossCase = "both"  # what dCAE's loss is made of: the paper's ablation
    warm_start: bool = True  # go on with the weights of the last interval; false: start anew each time

    def check_rules(self) -> None:
        check(
            self.kind in KINDS or ":" in self.kind,
            f"memory.embedder.kind cannot be '{self.kind}'. {did_you_mean(self.kind, KINDS)}",
        )
        check(self.batch_size <= self.samples, "memory.embedder.batch_size must not exceed memory.embedder.samples.")


@dataclasses.dataclass(frozen=True)
class MemoryOptions(Options, group="memory"):
    """Everything that decides how a memory of states of one size behaves; saved with it."""

    capacity: Count = 1_000_000  # memories kept
    gigabytes: Positive = 4.0  # bound on the whole memory, whatever its capacity
    key_dim: Annotated[int, Within(1, 8)] = 4  # dimension of a key
    radius: NotNegative = 1.3e-3  # delta; 0: (2 * 3 * sigma_y)^key_dim / capacity with sigma_y = 1 (paper, appendix)
    target_hit_rate: Annotated[float, Within(0, 1, open_high=True)] = 0.0  # share to match; the radius adapts. 0: fixed
    whiten: bool = False  # keys with variance 1 in every direction, not only along each dimension
    metric: Literal["l2", "linf"] = "l2"  # distance between keys; linf: every coordinate (the authors' code)
    half_precision: bool = False  # keep states in float16
    return_threshold: float | None = None  # R_thr: from which return on an episode is desirable; None: when it is won
    return_quantile: Share | None = None  # instead: the quantile of the last 1,000 returns that an episode must reach
    count_new_desirable: bool = True  # a new desirable memory counts as one desirable visit
    prior_desirable: NotNegative = 0.0  # a in the ratio (desirable visits + a) / (visits + b)
    prior_visits: NotNegative = 0.0  # b in that ratio: smooths it where visits are few
    backward_propagation: bool = False  # authors' code: after a desirable match the rest of the episode is desirable

    def check_rules(self) -> None:
        check(
            self.return_quantile is None or self.return_threshold is None,
            "memory.return_quantile excludes memory.return_threshold: give one of them.",
        )
        check(
            self.prior_desirable <= self.prior_visits,
            "memory.prior_desirable must not exceed memory.prior_visits: of that many visits it is the desirable part.",
        )

    @property
    def dtype(self) -> str:
        """Of the stored states."""
        return "float16" if self.half_precision else "float32"

    def entry_bytes(self, state_dim: int) -> int:
        """Of one entry, state included, index without trees (collapsed keys add up to 22 bytes an entry)."""
        state = state_dim * (2 if self.half_precision else 4)
        return state + 12 * self.key_dim + 4 + 4 + 1 + 8 + 8 + 4 + 4 + 8

    def bounded_capacity(self, state_dim: int) -> int:
        """Entries that `gigabytes` leaves room for, at most `capacity`."""
        fitting = int(self.gigabytes * 1e9) // self.entry_bytes(state_dim)
        if fitting < 1:
            raise ConfigError(
                f"memory.gigabytes {self.gigabytes:g} holds no entry of {self.entry_bytes(state_dim):,} bytes."
            )
        return min(self.capacity, fitting)
