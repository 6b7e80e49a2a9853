"""Whole runs of TD3 and EMU(TD3) on a plane: they learn, resume exactly, compile once, and remember single steps."""

import importlib.util

import numpy as np
import pytest

from emu import envs
from emu.config import Config
from emu.config.presets import preset
from emu.envs.check import check_env
from emu.replay.steps import Transitions
from emu.run.metrics import read_rows
from emu.training.loop import Trainer
from emu.training.session import resume, train
from toys import TINY, Point, silent

POINT = {
    "steps": 1_500,
    "log_interval": 300,
    "rollout.random_steps": 200,
    "replay.steps": 1_000,
    "td3.hidden": 32,
    "learner.gamma": 0.9,
    "learner.learning_rate": 2e-3,
    "learner.batch_size": 64,
    "learner.updates_per_episode": 0,
    "learner.updates_per_step": 1.0,
    "learner.updates_per_call": 16,
    "memory.radius": 0.02,
    "memory.embedder.interval": 400,
    "memory.return_threshold": -1.0,
    "memory.snapshot_interval": 0,
    "eval.interval": 500,
    "eval.episodes": 32,
    "checkpoint.interval": 250,
}


def point_config(algo: str, **changes) -> Config:
    return preset(algo, "toys:Point", **{**TINY, **POINT, **changes})


class Crash(Exception):
    pass


def crash_after(step, learn=Trainer.learn):
    def crash(self):
        learn(self)
        if self.counters.step > step:
            raise Crash

    return crash


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Trainers of whole runs, by algorithm."""
    trainers = {}
    for algo in ("td3", "emu_td3"):
        trainers[algo] = Trainer(point_config(algo), tmp_path_factory.mktemp(algo), silent())
        trainers[algo].run()
    return trainers


@pytest.mark.parametrize("algo", ["td3", "emu_td3"])
def test_it_learns_to_go_to_the_origin(runs, algo):
    """Random play: about -5.6 and hardly ever there. Seed 0, 1,300 updates."""
    tests = [row for row in read_rows(runs[algo].folder) if "test_return" in row]
    assert tests[0]["test_win_rate"] < 0.4
    assert tests[-1]["test_return"] > -1.6 and tests[-1]["test_win_rate"] > 0.8


def test_the_memory_answers_for_single_steps_and_adds_to_the_target(runs):
    rows = [row for row in read_rows(runs["emu_td3"].folder) if "incentive_bonus" in row]
    assert rows and max(row["incentive_bonus"] for row in rows) > 0
    assert all(0 < row["incentive_hit_rate"] <= 1 for row in rows)
    assert 0 < rows[-1]["memory_share_desirable"] < 1


def test_nothing_is_compiled_twice(runs):
    for trainer in runs.values():
        assert trainer.learner.update._cache_size() == 1 and trainer.rollout._run._cache_size() == 1


def test_random_steps_come_first_and_every_step_earns_an_update(runs):
    trainer = runs["td3"]
    rows = [row for row in read_rows(trainer.folder) if "updates" in row]
    assert all(row["epsilon"] == 0.1 for row in rows)  # of the rest: all logged after the random steps
    counters = trainer.counters
    assert 0 <= counters.owed < 16
    earned = counters.updates + counters.owed  # with those of the chunk in which learning began, without the unfinished
    assert abs(earned - (counters.step - 200)) <= 4 * 8 + 4 * 7
    assert isinstance(trainer.replay, Transitions) and 980 < trainer.replay.steps + len(trainer.replay) <= 1_000


def test_killed_and_resumed_it_writes_what_it_would_have_written(runs, tmp_path, monkeypatch):
    go_on = lambda: train(point_config("emu_td3"), tmp_path / "run", silent())  # noqa: E731
    for stop in (330, 780, 1_200):
        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(Trainer, "learn", crash_after(stop))
            go_on()
        go_on = lambda: resume(tmp_path / "run", progress=silent(), trust=True)  # noqa: E731
    go_on()
    whole, broken = (read_rows(folder) for folder in (runs["emu_td3"].folder, tmp_path / "run"))
    assert broken == whole and len(whole) > 8


def test_the_toy_keeps_its_contract():
    check_env(Point())


@pytest.mark.parametrize(("name", "radius"), [("Hopper", 1.3e-5), ("Walker2d", 1.3e-5), ("Humanoid", 1.3e-3)])
def test_the_presets_have_the_papers_settings(name, radius):
    config = preset("emu_td3", f"gymnasium:{name}-v4")
    assert (config.memory.radius, config.memory.return_threshold) == (radius, 500.0)
    assert (config.memory.embedder.interval, config.eval.interval) == (100_000, 50_000)
    assert (config.learner.updates_per_episode, config.learner.batch_size) == (6, 256)


@pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="mujoco is not installed")
def test_the_papers_tasks_are_there():
    for name, size, actions in (("Hopper", 11, 3), ("Walker2d", 17, 6), ("Humanoid", 376, 17)):
        spec = envs.make(f"gymnasium:{name}-v4").spec
        assert (spec.obs_dim, spec.action_dim, spec.episode_limit) == (size, actions, 1_000)
        assert "mujoco" in spec.version  # which decides the physics
    env = envs.make("gymnasium:Humanoid-v4")  # its bounds are 0.4
    np.testing.assert_allclose(env.act(np.full(17, 0.5, np.float32)), 0.2)
