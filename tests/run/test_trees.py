"""Trees as safetensors: exact round trips, nothing fitted that does not fit."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file

import emu.files
from emu.errors import CheckpointError
from emu.run.trees import load_part, load_tree, save_tree
from toys import flip_byte

from .trees import same_tree, some_tree


def test_trees_come_back_exactly_with_their_empty_arrays(tmp_path):
    tree = some_tree(0.1)
    save_tree(tmp_path / "tree", tree)
    same_tree(load_tree(tmp_path / "tree", some_tree(0.0)), tree)


TYPES = st.sampled_from([np.float32, np.float16, np.float64, np.int32, np.uint32, np.int8, np.bool_])


@settings(max_examples=60, deadline=None)
@given(st.lists(arrays.arrays(TYPES, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0)), max_size=4))
def test_any_arrays_come_back_bit_by_bit_whatever_their_order_in_memory(tmp_path_factory, leaves):
    path = tmp_path_factory.mktemp("trees") / "tree"
    turned = [np.asfortranarray(leaf) if leaf.ndim > 1 else leaf for leaf in leaves]
    save_tree(path, turned)
    for leaf, back in zip(leaves, load_tree(path, leaves), strict=True):
        assert (leaf.dtype, leaf.shape) == (back.dtype, back.shape)
        assert np.asarray(leaf, order="C").tobytes() == back.tobytes()


def test_other_programs_find_the_leaves_by_their_paths(tmp_path):
    save_tree(tmp_path / "tree", some_tree(4.0))
    stored = load_file(tmp_path / "tree")
    assert set(stored) == {"params.weight", "params.empty", "pair.first", "pair.second", "key"}
    assert (stored["params.weight"] == 4.0).all()


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"a": jnp.zeros(4)}, r"'a' is float32\[3\], expected float32\[4\]"),
        ({"a": jnp.zeros(3, jnp.int32)}, r"'a' is float32\[3\], expected int32\[3\]"),
        ({"b": jnp.zeros(3)}, "also holds 'a'"),
        ({"a": jnp.zeros(3), "b": jnp.zeros(3)}, "has no 'b'"),
        ({}, "also holds 'a'"),
    ],
)
def test_a_tree_that_does_not_fit_is_refused_by_the_name_of_the_leaf(tmp_path, like, message):
    save_tree(tmp_path / "tree", {"a": jnp.zeros(3)})
    with pytest.raises(CheckpointError, match=message):
        load_tree(tmp_path / "tree", like)


def test_a_part_of_a_tree_can_be_read(tmp_path):
    save_tree(tmp_path / "tree", {"learner": some_tree(1.0), "embedder": some_tree(2.0)})
    same_tree(load_part(tmp_path / "tree", {"embedder": some_tree(0.0)})["embedder"], some_tree(2.0))
    with pytest.raises(CheckpointError, match="has no 'other'"):
        load_part(tmp_path / "tree", {"other": jnp.zeros(1)})


@pytest.mark.parametrize("content", [b"", b"\x00" * 8, b"\xff" * 100, b"\x80\x04K\x01.", b'{"a": 1}'])
def test_anything_else_is_refused_and_never_executed(tmp_path, content):
    (tmp_path / "tree").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_tree(tmp_path / "tree", some_tree())


def test_a_tree_is_read_back_before_it_counts(tmp_path, monkeypatch):
    """A disk that does not keep what it is given is noticed at once, not when the run is resumed."""
    write = emu.files.replace_bytes

    def forgetful(path, content):
        write(path, content)
        flip_byte(path, 1.0)

    monkeypatch.setattr("emu.run.trees.replace_bytes", forgetful)
    with pytest.raises(CheckpointError, match="does not read back"):
        save_tree(tmp_path / "tree", {"a": jnp.arange(5.0)})
