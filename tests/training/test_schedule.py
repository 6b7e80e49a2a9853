"""When something is due, against a plain list of the steps at which it must happen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.config import RolloutConfig
from emu.training.schedule import Schedule, exploration


def happened(schedule, steps):
    """The steps at which a loop does what is due."""
    done = []
    for step in steps:
        if schedule.due(step):
            schedule.mark(step)
            done.append(step)
    return done


@given(st.integers(1, 50), st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_it_is_done_at_the_first_step_of_every_interval_that_is_entered(interval, chunks):
    steps = [sum(chunks[: k + 1]) for k in range(len(chunks))]
    expected, seen = [], {0}
    for step in steps:
        if step // interval not in seen:
            seen.add(step // interval)
            expected.append(step)
    assert happened(Schedule(interval), steps) == expected


def test_what_begins_at_minus_one_is_also_done_at_step_zero():
    assert happened(Schedule(100, done=-1), [0, 32, 96, 128]) == [0, 128]


def test_the_last_step_is_never_left_out():
    assert happened(Schedule(100, end=150), [32, 104, 160]) == [104, 160]


def test_an_interval_of_zero_is_never_due():
    assert happened(Schedule(0, end=10), [0, 5, 10, 20]) == []


def test_a_mark_survives_saving():
    schedule = Schedule(100)
    schedule.mark(250)
    assert happened(Schedule(100, done=schedule.done), [260, 299, 301]) == [301]


@pytest.mark.parametrize(("step", "epsilon"), [(0, 1.0), (99, 1.0), (100, 0.8), (150, 0.5), (200, 0.2), (10**6, 0.2)])
def test_exploration_is_random_first_and_then_falls_along_a_line(step, epsilon):
    rollout = RolloutConfig(epsilon_start=0.8, epsilon_end=0.2, epsilon_steps=100, random_steps=100)
    assert exploration(rollout, step) == pytest.approx(epsilon)
