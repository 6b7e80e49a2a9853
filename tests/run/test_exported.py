"""Exported teams: they come back as they were, and act the same in NumPy, PyTorch and ONNX."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import emu
from emu.config import replace
from emu.devices import Devices
from emu.errors import CheckpointError, EmuError
from emu.learners.build import build_learner
from toys import Point, tiny_config

EXAMPLE = Path(__file__).parents[2] / "examples" / "use_exported_team.py"


def made(algo, env=None, scale=1.0, **changes):
    """A team that was never trained, with large random parameters: its actions depend on all it has seen."""
    config = replace(tiny_config(algo), changes)
    game = env or emu.make_env(config.env)
    learner = build_learner(config, game.spec, Devices.of(1))
    start = learner.policy(learner.init(jax.random.PRNGKey(0)))
    rng = np.random.default_rng(3)
    policy = jax.tree.map(lambda leaf: (scale * rng.normal(size=leaf.shape)).astype(np.float32), start)
    return emu.Team(config, game, learner, policy, step=12, evaluation={"step": 12, "test_return": 1.5})


def shown(team, steps=30):
    """Made-up observations and availability."""
    rng, spec = np.random.default_rng(4), team.env.spec
    obs = rng.normal(size=(steps, spec.n_agents, spec.obs_dim)).astype(np.float32)
    avail = rng.random((steps, spec.n_agents, spec.n_actions)) < 0.7
    avail[..., 0] = True
    return list(zip(obs, avail, strict=True))


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("use_exported_team", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VARIANTS = [
    ("qmix", {}),
    ("qmix", {"agent.last_action": False, "agent.agent_id": False}),
    ("cds", {}),  # own heads
    ("mappo", {}),
]


@pytest.mark.parametrize("library", ["numpy", "torch", "onnx"])
@pytest.mark.parametrize(("algo", "changes"), VARIANTS)
def test_every_library_acts_as_the_team_does(tmp_path, example, library, algo, changes):
    if library != "numpy":
        pytest.importorskip(library)
    team = made(algo, **changes)
    folder = emu.export_team(team, tmp_path / "team", onnx=library == "onnx")
    act = getattr(example, f"with_{library}")(example.ExportedTeam(folder))
    team.reset()
    wanted = [team.act(obs, avail) for obs, avail in shown(team)]
    assert len(np.unique(wanted)) > 1
    assert np.array_equal(wanted, [act(obs, avail) for obs, avail in shown(team)])


@pytest.mark.parametrize("algo", ["td3", "dqn"])
def test_networks_of_single_agents_are_written_as_onnx(tmp_path, algo):
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    from emu.envs import EnvSpec

    class Vectors(Point):
        spec = EnvSpec("vectors", "1", 1, 3, 2, 2, 7, 2, True, (0.0, 1.0), state_is_obs=True)

    team = made(algo, Point() if algo == "td3" else Vectors(), scale=0.1)
    folder = emu.export_team(team, tmp_path / "team", onnx=True)
    graph = ReferenceEvaluator(str(folder / "team.onnx"))
    for obs, _ in shown(team):
        team.reset()
        wanted = team.act(obs)
        (answer,) = graph.run(None, {"obs": obs[None]})
        if algo == "td3":
            np.testing.assert_allclose(answer[0], wanted, atol=1e-5)
        else:
            assert answer[0].argmax(axis=-1) == wanted


def test_an_exported_team_is_loaded_as_it_was(tmp_path):
    team = made("qmix")
    loaded = emu.load(emu.export_team(team, tmp_path / "team"))
    assert loaded.step == 12 and loaded.evaluation == team.evaluation and loaded.config == team.config
    for mine, theirs in zip(jax.tree.leaves(loaded.policy), jax.tree.leaves(team.policy), strict=True):
        assert np.array_equal(mine, theirs)


def test_a_team_is_replaced_and_anything_else_is_left_alone(tmp_path):
    team = made("qmix")
    folder = emu.export_team(team, tmp_path / "team")
    emu.export_team(team, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["team.json", "team.safetensors"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("…")
    with pytest.raises(EmuError, match="already holds something else"):
        emu.export_team(team, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_another_format_and_missing_packages_are_explained(tmp_path, monkeypatch):
    team = made("qmix")
    folder = emu.export_team(team, tmp_path / "team")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(EmuError, match=r"emu-marl\[onnx\]"):
        emu.export_team(team, tmp_path / "other", onnx=True)
    assert not (tmp_path / "other").exists()
    content = json.loads((folder / "team.json").read_text())
    (folder / "team.json").write_text(json.dumps({**content, "format": 99}))
    with pytest.raises(CheckpointError, match="has format 99"):
        emu.load(folder)


def test_the_example_runs_as_a_program_without_jax(tmp_path):
    folder = emu.export_team(made("qmix"), tmp_path / "team")
    program = (
        f"import sys, runpy; sys.argv[1:] = [{str(folder)!r}]; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; assert not {{'jax', 'emu'}} & set(sys.modules)"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.startswith("numpy"), done.stderr
