"""What a memory must survive or refuse: foreign numbers, damaged saves, failing encoders, two threads."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import CheckpointError, ConfigError, EmuError
from emu.memory import EpisodicMemory, RadiusIndex, episodic_control_loss, episodic_control_reward, episodic_incentive
from emu.memory.incentive import elliptical_bonus


def first_two(states: np.ndarray, times: np.ndarray) -> np.ndarray:
    return np.asarray(states[:, :2], np.float32)


def memory(**options: Any) -> EpisodicMemory:
    given = {"state_dim": 3, "key_dim": 2, "capacity": 40, "radius": 0.1, "gamma": 0.5, "encode": first_two}
    return EpisodicMemory(**(given | options))


def episode(seed: int, steps: int = 6, won: bool = True) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(steps + 1, 3)).astype(np.float32)
    return {"state": states, "reward": rng.normal(size=steps).astype(np.float32), "won": won}


def filled(**options: Any) -> EpisodicMemory:
    subject = memory(**options)
    subject.update([SimpleNamespace(**episode(seed)) for seed in range(3)])
    return subject


def assert_equal(a: EpisodicMemory, b: EpisodicMemory) -> None:
    for name, column in a.export().items():
        np.testing.assert_array_equal(column, b.export()[name], err_msg=name)
    np.testing.assert_array_equal(a.states(slice(None)), b.states(slice(None)))
    states = np.random.default_rng(3).normal(size=(20, 3))
    for x, y in zip(a.peek(states, np.zeros(20))[0], b.peek(states, np.zeros(20))[0], strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("mask", [np.ones(3, bool), np.ones((4, 1), bool), np.ones((5, 4), bool), np.True_])
def test_a_mask_of_another_shape_is_refused(mask: np.ndarray) -> None:
    with pytest.raises(EmuError, match=r"mask must have the shape.*\(4, 5\)"):
        filled().recall(np.zeros((4, 5, 3)), np.zeros((4, 5)), mask)


@pytest.mark.parametrize("ids", [[2**32], [-1], [40], [0.0], [True], [2**63]])
def test_numbers_that_are_no_entry_are_refused_before_they_are_cut_to_32_bits(ids: list[Any]) -> None:
    index = RadiusIndex(2, 0.1, 40)
    index.insert(np.arange(3), np.arange(6, dtype=np.float32).reshape(3, 2))
    for call in (index.remove, lambda given: index.move(given, np.zeros((1, 2), np.float32))):
        with pytest.raises(EmuError, match="entry numbers must"):
            call(np.array(ids))
    assert all(entry in index for entry in range(3))


def test_rows_beyond_the_entries_are_refused() -> None:
    subject = filled()
    for rows in ([len(subject)], [-1], [0.5]):
        for read in (subject.states, subject.export):
            with pytest.raises(EmuError, match="entries are numbered"):
                read(np.array(rows))


@pytest.mark.parametrize("gamma", [float("nan"), 2.0, -0.1])
def test_a_discount_outside_0_and_1_is_refused(gamma: float) -> None:
    with pytest.raises(ConfigError, match="gamma in"):
        EpisodicMemory(state_dim=3, gamma=gamma)


@pytest.mark.parametrize("reward", [1e300, -1e31, np.nan, np.inf])
def test_rewards_whose_return_float32_cannot_hold_are_refused(reward: float) -> None:
    subject = memory()
    with pytest.raises(EmuError, match="rewards must be finite and within"):
        subject.update([SimpleNamespace(state=np.zeros((2, 3)), reward=np.array([reward]), won=True)])
    assert len(subject) == 0


def test_times_that_do_not_fit_the_states_are_refused_and_one_time_is_for_all() -> None:
    with pytest.raises(EmuError, match="times must have the shape"):
        filled().recall(np.zeros((4, 3)), np.zeros(3))
    assert filled().recall(np.zeros((4, 3)), np.int32(2)).found.shape == (4,)


def test_an_episode_may_be_a_dictionary_an_object_one_or_several_and_rewards_a_column() -> None:
    plain = episode(1)
    column = plain | {"reward": plain["reward"][:, None]}
    expected = memory()
    expected.update([SimpleNamespace(**plain)])
    for given in (plain, [plain], SimpleNamespace(**plain), column, [column], (e for e in [plain])):
        subject = memory()
        assert subject.update(given).added == 7
        assert_equal(subject, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": None}, r"needs state \(T\+1, S\), reward \(T,\) and won.*reward is missing"),
        ({"state": None}, "state is missing"),
        ({"reward": np.zeros((6, 2))}, r"reward must have shape \(T,\), one for the whole team, got \(6, 2\)"),
        ({"state": np.zeros((7, 4))}, r"state must have shape \(T\+1, 3\), got \(7, 4\)"),
        ({"state": np.zeros((6, 3))}, "6 rewards need 7 states"),
        ({"state": np.zeros((1, 7, 3))}, r"got \(1, 7, 3\)"),
        ({"reward": ["much"] * 6}, "reward must be an array of numbers"),
        ({"won": np.zeros(2)}, "won must be one flag"),
        ({"won": None}, "does not say whether it was won"),
    ],
)
def test_an_episode_that_cannot_be_read_is_told_what_is_wanted(changes: dict[str, Any], message: str) -> None:
    subject = memory()
    with pytest.raises(EmuError, match=message):
        subject.update([episode(0) | changes])
    assert len(subject) == 0
    with pytest.raises(EmuError, match="an episode or a list of episodes, got int"):
        subject.update(3)  # type: ignore[arg-type]


def test_where_a_return_decides_nobody_needs_to_say_who_won() -> None:
    assert memory(return_threshold=0.0).update(episode(1) | {"won": None}).added == 7


@pytest.mark.parametrize("function", [episodic_incentive, episodic_control_reward, episodic_control_loss])
def test_arrays_of_unequal_shapes_are_refused_instead_of_broadcast(function: Any) -> None:
    recall = filled().recall(np.zeros((5, 3)), np.zeros(5))
    good, column = np.zeros(5, np.float32), np.zeros((5, 1), np.float32)
    arguments = 2 if function is episodic_incentive else 3
    assert function(recall, *[good] * arguments, 0.9).shape == (5,)
    for place in range(arguments):
        given = [column if place == i else good for i in range(arguments)]
        with pytest.raises(EmuError, match=r"arrays of one shape, got found \(5,\)"):
            function(recall, *given, 0.9)
    with pytest.raises(EmuError, match="elliptical_bonus takes"):
        elliptical_bonus(np.zeros((2, 3, 4)), np.ones((2, 1), bool))


def bad_encoders() -> dict[str, Any]:
    def dies(states: np.ndarray, times: np.ndarray) -> np.ndarray:
        raise RuntimeError("out of memory")

    return {
        "raises": dies,
        "NaN": lambda s, t: np.full((len(s), 2), np.nan, np.float32),
        "shape": lambda s, t: np.zeros((len(s), 5), np.float32),
        "too far apart": lambda s, t: np.where(np.arange(len(s))[:, None] > 0, 3.4e38, -3.4e38) * np.ones((1, 2)),
    }


@pytest.mark.parametrize("kind", list(bad_encoders()))
def test_a_failing_encoder_leaves_the_memory_as_it_was(kind: str) -> None:
    subject, expected = filled(), filled()
    with pytest.raises((RuntimeError, EmuError)):
        subject.reembed(bad_encoders()[kind])
    assert_equal(subject, expected)
    for each in (subject, expected):
        each.update(episode(9))
        each.reembed()
    assert_equal(subject, expected)


@pytest.mark.parametrize("scale", [1e-45, 1e-42, 1e-39, 1e-30, 1e30])
@pytest.mark.parametrize("whiten", [False, True])
def test_any_spread_gives_finite_keys_under_which_every_state_finds_itself(scale: float, whiten: bool) -> None:
    subject = filled(whiten=whiten)
    subject.reembed(lambda s, t: (np.round(s[:, :2] * 4) * np.float64(scale)).astype(np.float32))
    assert np.isfinite(subject.export()["key"]).all() and (subject.normalisation.spread > 0).all()
    assert subject.recall(subject.states(slice(None)), 0).found.all()


@pytest.mark.parametrize("scale", [1e-45, 1e-42, 1e-39])
def test_a_dimension_that_says_nothing_beside_a_tiny_one_is_not_divided_by_zero(scale: float) -> None:
    """A ten-thousandth of the widest spread is no number of float32 there."""
    subject = filled()
    subject.reembed(lambda s, t: np.stack([np.round(s[:, 0] * 4) * np.float64(scale), s[:, 0] * 0], 1))
    assert np.isfinite(subject.export()["key"]).all() and (subject.normalisation.spread > 0).all()
    assert subject.recall(subject.states(slice(None)), 0).found.all()


def test_a_save_that_fails_half_way_leaves_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = filled()
    older.save(tmp_path)
    newer = filled()
    newer.update(episode(7))
    real = np.save
    for failing in range(9):
        calls = itertools.count()

        def save(*arguments: Any, calls: Any = calls, failing: int = failing, **keywords: Any) -> None:
            if next(calls) == failing:
                raise OSError("no space left on device")
            real(*arguments, **keywords)

        monkeypatch.setattr(np, "save", save)
        with pytest.raises(OSError, match="no space"):
            newer.save(tmp_path)
        monkeypatch.setattr(np, "save", real)
        again = memory()
        again.load(tmp_path)
        assert_equal(again, older)
    newer.save(tmp_path)
    again = memory()
    again.load(tmp_path)
    assert_equal(again, newer)
    assert len(list(tmp_path.iterdir())) == 10  # nothing of the older saves is left


def test_a_save_removes_nothing_but_older_saves(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("states-of-my-thesis.npy", "order-book.npy", "counts-7.npy.txt")]
    for path in others:
        path.touch()
    (tmp_path / "states-7.npy").mkdir()
    for _ in range(2):
        filled().save(tmp_path)
    assert all(path.exists() for path in others) and (tmp_path / "states-7.npy").is_dir()
    assert len(list(tmp_path.iterdir())) == 10 + 4


def array_file(folder: Path, name: str) -> Path:
    (path,) = folder.glob(f"{name}*.npy")
    return path


TAMPERED = {
    "order out of range": ("order", lambda a: a + 1),
    "order negative": ("order", lambda a: a - 1),
    "order far out": ("order", lambda a: np.where(a == 0, 2**30, a).astype(np.int32)),
    "order twice": ("order", lambda a: np.zeros_like(a)),
    "order of floats": ("order", lambda a: a.astype(np.float32)),
    "order of a square": ("order", lambda a: a[:, None]),
    "states of another width": ("states", lambda a: a[:, :2]),
    "states of another type": ("states", lambda a: a.astype(np.float64)),
    "states not finite": ("states", lambda a: a * np.float32(np.inf)),
    "embeddings not finite": ("embeddings", lambda a: a * np.float32(np.nan)),
    "embeddings of one number": ("embeddings", lambda a: a[:, 0]),
    "returns of another length": ("best_return", lambda a: a[:-1]),
    "returns not finite": ("best_return", lambda a: a + np.float32(np.inf)),
    "no visits": ("counts", lambda a: a * 0),
    "more desirable visits than visits": ("counts", lambda a: a + np.array([0, 5], np.int32)),
    "negative times": ("times", lambda a: a - 100),
    "flags that are no flags": ("desirable", lambda a: (a.view(np.uint8) + 2).view(np.bool_)),
    "a spread that makes keys infinite": ("normalisation", lambda a: np.where(a == 1, np.float32(1e-45), a)),
    "spread of zero": ("normalisation", lambda a: a * 0),
    "normalisation of another shape": ("normalisation", lambda a: a[:1]),
    "returns of too many episodes": ("recent_returns", lambda a: np.zeros(1_001)),
}


@pytest.mark.parametrize("what", list(TAMPERED))
def test_a_tampered_array_is_refused_and_changes_nothing(tmp_path: Path, what: str) -> None:
    filled().save(tmp_path)
    name, change = TAMPERED[what]
    path = array_file(tmp_path, name)
    np.save(path, change(np.load(path)))
    subject, expected = memory(), memory()
    for each in (subject, expected):
        each.update(episode(5))
    with pytest.raises(EmuError):
        subject.load(tmp_path)
    assert_equal(subject, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"counters": {}},
        {"counters": {"matched": -1}},
        {"options": {"key_dim": 99}},
        {"options": {"colour": "red"}},
        {"options": []},
        {"state_dim": "3"},
        {"state_dim": True},
        {"gamma": 7.0},
        {"radius": 0.0},
        {"save": None},
        {"save": 77},
    ],
)
def test_a_tampered_description_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    filled().save(tmp_path)
    path = tmp_path / "memory.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    for load in (memory().load, EpisodicMemory.open):
        with pytest.raises(CheckpointError):
            load(tmp_path)


def flip_bits(folder: Path, bits: range) -> int:
    """Load after every single flipped bit; what is accepted must be usable. Returns how many were refused."""
    refused = 0
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for place, bit in itertools.product(range(len(whole)), bits):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            subject = memory()
            try:
                subject.load(folder)
            except EmuError:
                refused += 1
                continue
            subject.update(episode(1))
            subject.recall(np.zeros((4, 3)), 0)
        path.write_bytes(whole)
    return refused


def test_one_flipped_bit_in_any_byte_never_crashes(tmp_path: Path) -> None:
    small = memory()
    small.update(episode(0, steps=2))
    small.save(tmp_path)
    assert flip_bits(tmp_path, range(6, 7)) > 100


@pytest.mark.slow
def test_any_flipped_bit_never_crashes(tmp_path: Path) -> None:
    small = memory()
    small.update(episode(0, steps=2))
    small.save(tmp_path)
    assert flip_bits(tmp_path, range(8)) > 1_000


def test_a_second_thread_is_refused_while_a_call_is_under_way() -> None:
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def slow(states: np.ndarray, times: np.ndarray) -> np.ndarray:
        begun.set()
        assert go_on.wait(10)
        return first_two(states, times)

    subject = memory(encode=slow)
    thread = threading.Thread(target=lambda: seen.append(subject.update(episode(0))))
    thread.start()
    assert begun.wait(10)
    calls = (
        lambda: subject.update(episode(1)),
        lambda: subject.recall(np.zeros((1, 3)), 0),
        lambda: subject.peek(np.zeros((1, 3)), 0),
        subject.reembed,
        subject.rejudge,
        lambda: subject.sample(1, np.random.default_rng(0)),
        lambda: subject.save("nowhere"),
        lambda: subject.load("nowhere"),
    )
    for call in calls:
        with pytest.raises(EmuError, match="one caller at a time"):
            call()
    go_on.set()
    thread.join()
    assert seen[0].added == 7 and subject.recall(np.zeros((1, 3)), 0).found.shape == (1,)


def test_an_error_does_not_keep_the_memory_locked() -> None:
    subject = memory()
    with pytest.raises(EmuError):
        subject.recall(np.zeros((1, 9)), 0)
    assert subject.update(episode(0)).added == 7
