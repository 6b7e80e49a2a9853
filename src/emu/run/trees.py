"""Trees of arrays on disk as safetensors: parameters, optimisers, random keys. Reading one executes nothing.

A leaf is stored under its path, `learner.params.agent.gru.kernel`, so that any tool which reads safetensors (PyTorch,
model hubs) finds it by name. Reading needs a tree of the same structure, which says where each leaf belongs.
"""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from emu.errors import CheckpointError
from emu.files import reason, replace_bytes
from emu.types import PyTree

SUFFIX = ".safetensors"


def save_tree(path: Path, tree: PyTree) -> None:
    """Write a tree in one step, and read it back before it counts."""
    leaves = named_leaves(tree)
    replace_bytes(path, safetensors.save(leaves))
    stored = _read(path)
    if stored.keys() != leaves.keys() or any(stored[name].tobytes() != leaf.tobytes() for name, leaf in leaves.items()):
        raise CheckpointError(f"{path} does not read back as it was written: the disk or its driver is at fault")


def load_tree(path: Path, like: PyTree) -> PyTree:
    """Read a tree back as host arrays, in the structure and with the shapes of `like`."""
    stored, wanted = _read(path), named_leaves(like)
    extra = sorted(stored.keys() - wanted.keys())
    if extra:
        raise CheckpointError(f"{path} does not fit this configuration: it also holds '{extra[0]}'")
    return _fitted(path, stored, like, wanted)


def load_part(path: Path, like: PyTree) -> PyTree:
    """Some leaves of a stored tree, those that `like` names, as host arrays."""
    return _fitted(path, _read(path), like, named_leaves(like))


def named_leaves(tree: PyTree) -> dict[str, np.ndarray]:
    """The leaves by their paths; in C order, for the library writes whatever order it finds as if it were that."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(tree))
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf, order="C") for path, leaf in leaves
    }


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        return safetensors.load(path.read_bytes())
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}") from error


def _fitted(path: Path, stored: dict[str, np.ndarray], like: PyTree, wanted: dict[str, np.ndarray]) -> PyTree:
    for name, leaf in wanted.items():
        if name not in stored:
            raise CheckpointError(f"{path} does not fit this configuration: it has no '{name}'")
        found = stored[name]
        if (found.shape, found.dtype) != (leaf.shape, leaf.dtype):
            raise CheckpointError(
                f"{path} does not fit this configuration: '{name}' is {found.dtype}{list(found.shape)}, "
                f"expected {leaf.dtype}{list(leaf.shape)}"
            )
    return jax.tree.unflatten(jax.tree.structure(like), [stored[name] for name in wanted])
