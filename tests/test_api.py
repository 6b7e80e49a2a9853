"""The Python API: a run trained, resumed, read; a team loaded, acting, evaluated; callbacks; what importing costs."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import emu
from emu.errors import CheckpointError, ConfigError, EmuError
from emu.play.episode import Evaluation
from toys import TINY

SETTINGS = {**TINY, "checkpoint.keep": 5}


def train(folder, algo="qmix", env="gridworld/tiny", **changes):
    return emu.train(algo, env, folder=folder, quiet=True, **{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("api") / "run", seed=1)


@pytest.fixture(scope="module")
def team(run):
    return emu.load(run)


@pytest.fixture(scope="module")
def lively(team):
    """A team whose actions depend on all it has seen: its parameters are drawn at random and large."""
    rng = np.random.default_rng(5)
    policy = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), team.policy)
    return emu.Team(team.config, team.env, team.learner, policy, step=0)


# Importing


def modules_after(program):
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_emu_loads_nothing_of_the_package_and_nothing_heavy():
    loaded = modules_after("import emu; emu.__version__; dir(emu)")
    assert {name for name in loaded if name.split(".")[0] == "emu"} == {"emu"}
    assert not {"jax", "numba", "matplotlib", "numpy", "pandas", "rich"} & loaded


def test_every_public_name_exists_and_is_listed():
    assert set(emu.__all__) <= set(dir(emu))
    assert all(getattr(emu, name) is not None for name in emu.__all__)
    assert not hasattr(emu, "trian")


def test_emu_train_stays_a_function_whatever_is_imported():
    import emu.training.loop

    assert callable(emu.train) and emu.train.__name__ == "train"


# Runs


def test_a_run_is_where_it_was_asked_to_be_and_knows_its_settings(run):
    assert run.path.name == "run" and Path(run) == run.path
    assert (run.config.algo, run.config.seed, run.config.steps) == ("qmix", 1, 400)
    assert emu.Run(str(run.path)).metrics().keys() == run.metrics().keys()
    assert repr(run) == f"Run('{run.path}')"


def test_metrics_are_the_rows_of_the_file_with_nan_for_what_a_row_lacks(run):
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    metrics = run.metrics()
    assert {len(column) for column in metrics.values()} == {len(rows)}
    assert metrics.keys() == {name for row in rows for name in row} and next(iter(metrics)) == "step"
    for number, row in enumerate(rows):
        for name, column in metrics.items():
            assert column[number] == row[name] if name in row else np.isnan(column[number])
    assert np.isnan(metrics["test_return"]).any() and not np.isnan(metrics["test_return"]).all()
    last = np.flatnonzero(~np.isnan(metrics["test_return"]))[-1]
    assert run.last_evaluation()["test_return"] == metrics["test_return"][last]


def test_the_frame_holds_the_metrics(run):
    pytest.importorskip("pandas")
    frame = run.frame()
    assert list(frame.columns) == list(run.metrics()) and len(frame) == len(run.metrics()["step"])


def test_without_pandas_the_frame_says_what_is_missing(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EmuError, match="pip install pandas"):
        run.frame()


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(EmuError, match="is not a run folder"):
        emu.Run(tmp_path)
    with pytest.raises(ConfigError, match=r"Did you mean 'gamma'\?"):
        train(tmp_path / "run", **{"learner.gama": 0.9})
    assert not (tmp_path / "run").exists()


def test_a_run_goes_where_the_command_would_put_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = {**TINY, "steps": 100, "eval.interval": 1_000}
    run = emu.train("vdn", "matrix/coordination", seed=3, quiet=True, **short)
    assert run.path == Path("runs/matrix-coordination/vdn-seed3")
    with pytest.raises(EmuError, match="already exists"):
        emu.train("vdn", "matrix/coordination", seed=3, quiet=True, **short)
    longer = emu.resume(str(run.path), 200, quiet=True)
    assert longer.metrics()["step"][-1] >= 200 and longer.config.steps == 200


def test_quiet_is_quiet(tmp_path, capfd):
    train(tmp_path / "run", steps=100)
    assert capfd.readouterr() == ("", "")


# Callbacks


class Watcher:
    """Notes what it is told; ends the run at a step."""

    def __init__(self, until=float("inf")):
        self.chunks, self.evaluations, self.until = [], [], until

    def on_chunk(self, step, metrics):
        self.chunks.append((step, dict(metrics)))
        metrics.clear()  # a copy: nobody else sees this

    def on_evaluation(self, step, metrics):
        self.evaluations.append((step, dict(metrics)))
        metrics.clear()
        return step >= self.until


def test_callbacks_are_told_everything_and_change_nothing(run, tmp_path):
    watcher = Watcher()
    other = train(tmp_path / "run", seed=1, callbacks=[watcher])
    assert (other.path / "metrics.jsonl").read_bytes() == (run.path / "metrics.jsonl").read_bytes()
    metrics = run.metrics()
    evaluated = ~np.isnan(metrics["test_return"])
    assert [step for step, _ in watcher.evaluations] == metrics["step"][evaluated].tolist()
    assert [values["test_return"] for _, values in watcher.evaluations] == metrics["test_return"][evaluated].tolist()
    steps = [step for step, _ in watcher.chunks]
    assert steps == sorted(set(steps)) and steps[-1] == metrics["step"][-1]
    assert watcher.chunks[-1][1]["train_return"] == metrics["train_return"][~evaluated][-1]
    assert [values["updates"] for _, values in watcher.chunks] == sorted(v["updates"] for _, v in watcher.chunks)


@pytest.mark.parametrize("until", [0, 150])
def test_a_callback_ends_the_run_and_resuming_gives_what_an_undisturbed_run_gives(run, tmp_path, until):
    watcher = Watcher(until)
    stopped = train(tmp_path / "run", seed=1, callbacks=[watcher])
    assert stopped.metrics()["step"][-1] < 400 and watcher.evaluations[-1][0] >= until
    resumed = emu.resume(stopped, quiet=True)
    assert (resumed.path / "metrics.jsonl").read_bytes() == (run.path / "metrics.jsonl").read_bytes()


def test_what_is_no_callback_is_refused_before_anything_is_made(tmp_path):
    for wrong in (print, Watcher):
        with pytest.raises(ConfigError, match="is no callback"):
            train(tmp_path / "run", callbacks=[wrong])
    assert not (tmp_path / "run").exists()


# Teams


def episode(env, seed, act):
    """A greedy episode in a loop of one's own: the return, and what was seen, available and done at every step."""
    key, over, total, seen = jax.random.PRNGKey(seed), False, 0.0, []
    state = env.reset(key)
    while not over:
        key, here = jax.random.split(key)
        obs, avail = np.asarray(env.observe(state)), np.asarray(env.avail(state))
        actions = act(obs, avail)
        seen.append((obs, avail, actions))
        state, outcome = env.step(state, actions, here)
        total, over = total + float(outcome.reward), bool(outcome.terminated | outcome.truncated)
    return total, seen


def learner_oracle(team):
    """Acts by the learner itself, one step after the other, with the carry in plain sight."""
    carry = team.learner.initial_carry(1)

    def act(obs, avail):
        nonlocal carry
        key = jax.random.PRNGKey(7)
        actions, carry = team.learner.act(team.policy, carry, obs[None], avail[None], np.float32(0), key)
        return np.asarray(actions[0])

    return act


def test_a_team_acts_as_its_learner_does_greedily(lively):
    env = emu.make_env("gridworld/tiny")
    for seed in range(3):
        lively.reset()
        total, seen = episode(env, seed, lively.act)
        expected, wanted = episode(env, seed, learner_oracle(lively))
        assert total == expected and len(seen) == len(wanted)
        assert len({int(action) for _, _, actions in seen for action in actions}) > 1
        assert all(np.array_equal(mine[2], theirs[2]) for mine, theirs in zip(seen, wanted, strict=True))
    actions = seen[0][2]
    assert isinstance(actions, np.ndarray) and actions.shape == (2,) and actions.dtype == np.int32


def test_many_environments_are_played_as_each_alone(lively):
    """Copies begin at different times: a copy that begins anew must not remember, the others must."""
    rng = np.random.default_rng(0)
    spec = lively.env.spec
    obs = rng.normal(size=(9, 3, spec.n_agents, spec.obs_dim)).astype(np.float32)
    avail = rng.random((9, 3, spec.n_agents, spec.n_actions)) < 0.7
    avail[..., 0] = True
    begins = np.zeros((9, 3), bool)
    begins[4, 1] = begins[5, 2] = begins[6, 1] = True

    lively.reset()
    together = []
    for t in range(9):
        if begins[t].any():
            lively.reset(begins[t])
        together.append(lively.act(obs[t], avail[t]))
    for copy in range(3):
        lively.reset()
        for t in range(9):
            if begins[t, copy]:
                lively.reset()
            assert np.array_equal(lively.act(obs[t, copy], avail[t, copy]), together[t][copy])


def test_a_team_remembers_within_an_episode_only(lively):
    rng = np.random.default_rng(1)
    spec = lively.env.spec
    shown = rng.normal(size=(40, spec.n_agents, spec.obs_dim)).astype(np.float32)
    lively.reset()
    first = [lively.act(obs) for obs in shown]
    lively.reset()
    assert np.array_equal(first, [lively.act(obs) for obs in shown])
    fresh = []
    for obs in shown:
        lively.reset()
        fresh.append(lively.act(obs))
    assert not np.array_equal(first, fresh)


def test_lists_are_taken_and_all_actions_are_available_unless_told(team):
    spec = team.env.spec
    obs = np.full((spec.n_agents, spec.obs_dim), 0.5)
    every = np.ones((spec.n_agents, spec.n_actions), int)
    team.reset()
    given = team.act(obs.tolist(), every.tolist())
    team.reset()
    assert np.array_equal(given, team.act(obs))
    for action in range(spec.n_actions):
        team.reset()
        assert (team.act(obs, np.eye(spec.n_actions, dtype=bool)[[action, action]]) == action).all()


def test_wrong_shapes_are_explained(team):
    spec = team.env.spec
    good, every = np.zeros((2, spec.obs_dim)), np.ones((2, spec.n_actions), bool)
    team.reset()
    with pytest.raises(EmuError, match=rf"obs has shape \[3, {spec.obs_dim}\]; this team takes \[2, {spec.obs_dim}\]"):
        team.act(np.zeros((3, spec.obs_dim)))
    with pytest.raises(EmuError, match=r"avail has shape \[2, 1\]"):
        team.act(good, np.ones((2, 1), bool))
    with pytest.raises(EmuError, match="Agent 1 has no action"):
        team.act(good, every & np.array([[True], [False]]))
    team.act(good, every)
    with pytest.raises(EmuError, match=r"acts in 1 environments, and now there are 4. Call reset\(\)"):
        team.act(np.stack([good] * 4))
    with pytest.raises(EmuError, match="one value for each environment"):
        team.reset([True, False])


def test_teams_of_the_last_and_of_kept_checkpoints_are_loaded(run, team):
    steps = sorted(int(path.name) for path in (run.path / "checkpoints").iterdir())
    last, first = emu.load(str(run.path), which="last"), emu.load(run.path, which=steps[0])
    assert (last.step, first.step) == (steps[-1], steps[0]) and last.evaluation == {} and team.evaluation

    def parameters(one):
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(one.policy)])

    assert not np.array_equal(parameters(first), parameters(last))
    best = np.nanargmax(run.metrics()["test_return"] + 1e3 * run.metrics()["test_win_rate"])
    assert team.step == run.metrics()["step"][best]
    with pytest.raises(CheckpointError, match=f"no checkpoint of step 7; it keeps those of {steps[0]}"):
        emu.load(run, which=7)
    with pytest.raises(EmuError, match='"best", "last" or a step'):
        emu.load(run, which="newest")  # type: ignore[arg-type]


def test_the_last_team_of_a_stopped_run_is_what_the_trainer_had(run, tmp_path):
    from emu.config.presets import preset
    from emu.training.loop import Trainer
    from emu.training.progress import Progress

    trainer = Trainer(preset("qmix", "gridworld/tiny", seed=1, **SETTINGS), tmp_path, Progress(quiet=True))
    trainer.run()
    last = emu.load(run, which="last")
    for mine, theirs in zip(jax.tree.leaves(last.policy), jax.tree.leaves(trainer.policy), strict=True):
        assert np.array_equal(mine, theirs)


def test_evaluate_plays_the_episodes_of_its_seed(run, team):
    values = emu.evaluate(team, episodes=16, seed=5)
    assert values == emu.evaluate(run, episodes=16, seed=5) and values["episodes"] == 16
    assert 0 <= values["test_win_rate"] <= 1 and values["trained_steps"] == team.step
    with pytest.raises(EmuError, match="between 1 and"):
        emu.evaluate(team, episodes=0)
    with pytest.raises(EmuError, match="seed must lie"):
        emu.evaluate(team, episodes=1, seed=-1)


def test_a_task_without_a_goal_has_no_win_rate(team, monkeypatch):
    class Aimless:
        spec = dataclasses.replace(team.env.spec, has_goal=False)

    def played(*_):
        return Evaluation(np.ones(2, np.float32), np.zeros(2, bool), np.ones(2, np.int32))

    monkeypatch.setattr("emu.api.evaluate_team", played)
    monkeypatch.setattr(team, "env", Aimless())
    assert "test_win_rate" not in emu.evaluate(team, episodes=2)
