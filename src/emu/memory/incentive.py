"""What the memory adds to a learner's target (paper: Eq. 2, 3, 7-11; E3B's bonus for comparison).

Pure functions of arrays with one leading shape, numpy or JAX alike, traceable under jit. Time is written as in the
paper: a transition (s, a, r, s'); `recall` and `next_value` belong to s', `terminated` to the transition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.errors import EmuError

if TYPE_CHECKING:
    from emu.memory.episodic import Recall

Array = Any


def _check_shapes(function: str, **arrays: Array) -> None:
    """(5,) and (5, 1) would broadcast to (5, 5) without a word: refused."""
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise EmuError(f"{function} takes arrays of one shape, got {listed}")


def episodic_incentive(
    recall: Recall, next_value: Array, terminated: Array, gamma: float, optimistic: bool = False
) -> Array:
    """r^p = γ · N_ξ/N_call · max(0, H(s') − max Q⁻(s')) where s' is found and not terminal, else 0 (Eq. 7).

    `optimistic` takes ξ in place of the visit ratio. No gradient is meant to flow into `next_value`.
    """
    _check_shapes("episodic_incentive", found=recall.found, next_value=next_value, terminated=terminated)
    xp = next_value.__array_namespace__()
    trust = xp.astype(recall.desirable, next_value.dtype) if optimistic else recall.ratio
    gap = xp.maximum(recall.best_return - next_value, xp.zeros_like(next_value))
    counts = xp.logical_and(recall.found, xp.logical_not(xp.astype(terminated, xp.bool)))
    return xp.where(counts, gamma * trust * gap, xp.zeros_like(next_value))


def episodic_control_reward(
    recall: Recall, reward: Array, value: Array, terminated: Array, gamma: float, weight: float = 0.1
) -> Array:
    """r^EC = λ (r + γ H(s') − Q(s, a)) where s' is found, else 0 (Theorem 1).

    As a reward in the squared TD error, with `value` held constant, it gives the gradient of the episodic-control loss.
    A terminal s' has H = 0 by definition, so nothing is bootstrapped there.
    """
    arrays = {"found": recall.found, "reward": reward, "value": value, "terminated": terminated}
    _check_shapes("episodic_control_reward", **arrays)
    xp = value.__array_namespace__()
    best = xp.where(xp.astype(terminated, xp.bool), xp.zeros_like(value), recall.best_return)
    return xp.where(recall.found, weight * (reward + gamma * best - value), xp.zeros_like(value))


def episodic_control_loss(
    recall: Recall, reward: Array, value: Array, terminated: Array, gamma: float, weight: float = 0.1
) -> Array:
    """λ (r + γ H(s') − Q(s, a))² per transition, 0 where s' is not found (Eq. 2, 3: conventional control)."""
    arrays = {"found": recall.found, "reward": reward, "value": value, "terminated": terminated}
    _check_shapes("episodic_control_loss", **arrays)
    xp = value.__array_namespace__()
    best = xp.where(xp.astype(terminated, xp.bool), xp.zeros_like(value), recall.best_return)
    error = reward + gamma * best - value
    return xp.where(recall.found, weight * error * error, xp.zeros_like(value))


def elliptical_bonus(embeddings: Array, mask: Array, ridge: float = 0.1) -> Array:
    """b_t = x_tᵀ C_t⁻¹ x_t within each episode, C_t = ridge · I + Σ_{k<t} x_k x_kᵀ (E3B, Henaff et al. 2022).

    embeddings (B, T, D), mask (B, T) false on padding → (B, T). The paper's rank-one updates of C⁻¹ are a loop over
    time; running sums of D×D matrices and one small Cholesky factor a step give the same without a loop.
    """
    if embeddings.ndim != 3 or embeddings.shape[:2] != mask.shape:
        raise EmuError(f"elliptical_bonus takes (B, T, D) and (B, T), got {embeddings.shape} and {mask.shape}")
    xp = embeddings.__array_namespace__()
    x = xp.where(mask[..., None], embeddings, xp.zeros_like(embeddings))
    outer = x[..., :, None] * x[..., None, :]
    before = xp.cumulative_sum(outer, axis=1) - outer
    bonus = _inverse_form(before + ridge * xp.eye(x.shape[-1], dtype=x.dtype), x)
    return xp.where(mask, bonus, xp.zeros_like(bonus))


def _inverse_form(matrix: Array, vector: Array) -> Array:
    """vᵀ M⁻¹ v = ‖L⁻¹v‖² with M = L Lᵀ, for stacks (..., D, D) and (..., D) of a D small enough to write out."""
    xp = vector.__array_namespace__()
    dims = vector.shape[-1]
    lower: dict[tuple[int, int], Array] = {}
    solved: list[Array] = []
    for i in range(dims):
        for j in range(i + 1):
            rest = matrix[..., i, j] - sum((lower[i, k] * lower[j, k] for k in range(j)), start=0.0)
            lower[i, j] = xp.sqrt(rest) if i == j else rest / lower[j, j]
        known = sum((lower[i, k] * solved[k] for k in range(i)), start=0.0)
        solved.append((vector[..., i] - known) / lower[i, i])
    return sum((part * part for part in solved[1:]), start=solved[0] * solved[0])
