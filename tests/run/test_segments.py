"""Segments of episodes: exact, and one damaged place is put right from the parity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import CheckpointError
from emu.files import Fingerprint, replace_arrays
from emu.run.segments import STRIPES, Segment, SegmentDamaged
from toys import CountingEnv, flip_byte, make_episode, same_episode

SPEC = CountingEnv().spec


def written(folder, count=5, first=3):
    episodes = [make_episode(SPEC, 1 + n % 7, n, log_prob=True) for n in range(count)]
    return Segment.write(folder, first, episodes), episodes


def same(segment, episodes, repair=True):
    numbered = segment.episodes(repair)
    assert [number for number, _ in numbered] == list(range(segment.first, segment.first + len(episodes)))
    assert all(same_episode(found, meant) for (_, found), meant in zip(numbered, episodes, strict=True))


def test_episodes_come_back_with_their_numbers(tmp_path):
    segment, episodes = written(tmp_path)
    same(segment, episodes)
    same(Segment(tmp_path, dict(segment.described)), episodes)
    assert {path.name for path in tmp_path.iterdir()} == segment.names


def test_episodes_are_read_back_before_they_count(tmp_path, monkeypatch):
    """The disk keeps something else than it was given."""

    def corrupting(path, arrays, **options):
        replace_arrays(path, {**arrays, "reward": arrays["reward"] + 1} if "reward" in arrays else arrays, **options)

    monkeypatch.setattr("emu.run.segments.replace_arrays", corrupting)
    with pytest.raises(CheckpointError, match="does not read back as it was written"):
        written(tmp_path)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_damage_within_one_stripe_is_put_right_wherever_it_is(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("segment")
    segment, episodes = written(folder)
    content = bytearray(segment.path.read_bytes())
    whole = bytes(content)
    width = -(-len(content) // STRIPES)
    stripe = data.draw(st.integers(0, STRIPES - 1))
    begin = data.draw(st.integers(stripe * width, min((stripe + 1) * width, len(content)) - 1))
    end = data.draw(st.integers(begin + 1, min((stripe + 1) * width, len(content))))
    for k in range(begin, end):
        content[k] ^= 0x5A
    segment.path.write_bytes(content)
    same(segment, episodes, repair=False)
    assert segment.path.read_bytes() == bytes(content), "only looked at"
    same(segment, episodes, repair=True)
    assert segment.path.read_bytes() == whole, "mended"


@pytest.mark.parametrize("damage", ["two stripes", "cut", "longer", "gone", "parity too"])
def test_more_damage_than_that_is_said(tmp_path, damage):
    segment, _ = written(tmp_path)
    content = segment.path.read_bytes()
    if damage == "gone":
        segment.path.unlink()
    elif damage == "cut":
        segment.path.write_bytes(content[:-1])
    elif damage == "longer":
        segment.path.write_bytes(content + b"x")
    else:
        flip_byte(segment.path, 0.1)
        second = (segment.path, 0.9) if damage == "two stripes" else (segment.path.with_suffix(".parity"), 0.3)
        flip_byte(*second)
    with pytest.raises(SegmentDamaged, match=segment.path.name):
        segment.episodes(repair=True)


def test_a_parity_that_leads_to_something_else_is_not_believed(tmp_path):
    """Whole as a file, but not that of this segment: what it gives is not what was written."""
    segment, _ = written(tmp_path)
    path = segment.path.with_suffix(".parity")
    with np.load(path) as stored:
        replace_arrays(path, {**stored, "parity": stored["parity"] ^ 1})
    flip_byte(segment.path)
    damaged = segment.path.read_bytes()
    with pytest.raises(SegmentDamaged, match=segment.path.name):
        segment.episodes(repair=True)
    assert segment.path.read_bytes() == damaged


UNLIKE_THEIR_LENGTHS = {
    "no length": lambda a: {"lengths": a["lengths"] * 0},
    "negative lengths": lambda a: {"lengths": -a["lengths"]},
    "lengths of floats": lambda a: {"lengths": a["lengths"].astype(np.float64)},
    "lengths in a square": lambda a: {"lengths": a["lengths"][:, None]},
    "wins of numbers": lambda a: {"won": a["won"].astype(np.int8)},
    "too few wins": lambda a: {"won": a["won"][:-1]},
    "too few rewards": lambda a: {"reward": a["reward"][:-1]},
    "too many observations": lambda a: {"obs": np.concatenate([a["obs"], a["obs"][:1]])},
}


@pytest.mark.parametrize("what", UNLIKE_THEIR_LENGTHS)
def test_episodes_that_are_not_what_their_lengths_say_are_refused(tmp_path, what):
    """Somebody made the checksum fit."""
    segment, _ = written(tmp_path)
    with np.load(segment.path) as stored:
        arrays = dict(stored)
    replace_arrays(segment.path, arrays | UNLIKE_THEIR_LENGTHS[what](arrays), compressed=False)
    forged = Segment(tmp_path, segment.described | Fingerprint.of(segment.path)._asdict())
    with pytest.raises(SegmentDamaged, match=segment.path.name):
        forged.episodes(repair=True)


@pytest.mark.parametrize("name", ["../../etc/passwd", "thesis.tex", "episodes-1-2.npz", ""])
def test_a_description_with_a_strange_name_is_refused(tmp_path, name):
    with pytest.raises(CheckpointError, match="no name of a segment"):
        Segment(tmp_path, {"name": name, "first": 0, "count": 1, "bytes": 1, "crc": 1})
    with pytest.raises(CheckpointError, match="described wrongly"):
        Segment(tmp_path, {"name": "episodes-000000000-000000001.npz", "first": []})
