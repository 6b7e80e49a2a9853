"""The clock, with a time of our own making."""

import pytest

from emu.training import clock as module
from emu.training.clock import ACTIVITIES, Clock


@pytest.fixture
def now(monkeypatch):
    time = [0.0]
    for name in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(module.time, name, lambda: time[0])
    return time


def test_time_is_added_to_its_activity_even_when_that_fails(now):
    clock = Clock()
    with clock("rollout"):
        now[0] += 2
    with pytest.raises(ValueError), clock("learner"):
        now[0] += 3
        raise ValueError
    with clock("rollout"):
        now[0] += 4
    assert clock.row() == {"wall": 9.0, **dict.fromkeys(ACTIVITIES, 0.0), "rollout": 6.0, "learner": 3.0}


def test_minutes_are_counted_since_the_last_save(now):
    clock = Clock()
    now[0] = 90.0
    assert clock.minutes_unsaved == 1.5
    clock.saved()
    assert clock.minutes_unsaved == 0.0
