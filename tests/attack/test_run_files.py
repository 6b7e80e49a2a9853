"""A run's own files, changed by somebody who knows the formats: checksums are made to fit again, types and shapes are
not what they were. Commands that load a team or go on with a run end with a message or do their work; they never fail
otherwise, and nothing that such a file names is executed."""

import itertools
import json
import shutil

import numpy as np
import pytest
from safetensors import numpy as safetensors

from emu.files import Fingerprint
from system.processes import tiny_train

from .common import command

WRONG = [None, True, -1, 1.5, 1e400, 10**400, "x", "[/bold]", "../../secret", [], [1], {}, {"a": 1}, [[]], 10**12]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of seconds with a memory, two checkpoints and a best team; and its team, exported."""
    folder = tmp_path_factory.mktemp("attacked")
    settings = {"steps": 64, "checkpoint.interval": 32, "checkpoint.minutes": 0, "memory.snapshot_interval": 0}
    answer = command(*tiny_train(folder / "run", "emu_qmix", **settings))
    assert answer.status == 0, answer
    assert command("export-team", folder / "run", folder / "team").status == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path / "run"


def newest(run):
    return max(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())


def tamper(run, name, content):
    """Replace a file of both checkpoints, and make the manifests fit."""
    for folder in (run / "checkpoints").iterdir():
        path = folder / name
        path.write_bytes(content(path.read_bytes()) if callable(content) else content)
        manifest = json.loads((folder / "manifest.json").read_bytes())
        manifest["files"][name] = Fingerprint.of(path)._asdict()
        (folder / "manifest.json").write_text(json.dumps(manifest))


def changed(*path, value):
    """What puts a value somewhere into a JSON object."""

    def change(content):
        whole = json.loads(content)
        node = whole
        for key in path[:-1]:
            if isinstance(node, list) and key >= len(node):  # the first checkpoint has no episodes yet
                return content
            node = node[key]
        if not isinstance(node, list) or path[-1] < len(node):
            node[path[-1]] = value
        return json.dumps(whole).encode()

    return change


def go_on(run, *words):
    """Resume; the run must end well or be refused with a message."""
    answer = command("resume", run, "--steps", 96, *words)
    assert answer.status in (0, 2), answer
    assert "Traceback" not in answer.err
    return answer


STATE = [
    ("settings",),
    ("settings", "steps"),
    ("counters",),
    ("counters", "step"),
    ("counters", "owed"),
    ("counters", "best"),
    ("counters", "last_checkpoint"),
    ("schedules",),
    ("schedules", "evaluation"),
    ("means",),
    ("metrics_bytes",),
    ("best",),
    ("trainings",),
    ("replay_added",),
    ("replay_first",),
    ("segments",),
    ("segments", 0),
    ("segments", 0, "name"),
    ("segments", 0, "first"),
    ("segments", 0, "count"),
    ("segments", 0, "bytes"),
]
FEW = [None, -1, "../../secret", {"a": 1}]


@pytest.mark.parametrize("path", STATE, ids=lambda path: ".".join(map(str, path)))
def test_a_tampered_state_is_refused_or_gone_on_with(run, path):
    tamper(run, "state.json", changed(*path, value=FEW[len(path) % len(FEW)]))
    go_on(run)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("settings", "steps"), 1e400),  # an infinite number is none of steps
        (("counters", "step"), 1e400),
        (("counters", "owed"), 10**12),  # would update for ever
        (("schedules", "evaluation"), 10**12),  # beyond the seeds that evaluations have
    ],
)
def test_numbers_that_no_run_reaches_are_refused(run, path, value):
    tamper(run, "state.json", changed(*path, value=value))
    assert go_on(run).status == 2


def test_an_empty_file_with_a_checksum_that_fits_is_refused(run):
    tamper(run, "rollout.npz", b"")
    assert go_on(run).status == 2


@pytest.mark.slow
@pytest.mark.parametrize(("path", "value"), itertools.product(STATE, range(len(WRONG))))
def test_a_state_tampered_in_any_way_is_refused_or_gone_on_with(run, path, value):
    tamper(run, "state.json", changed(*path, value=WRONG[value]))
    go_on(run)


def test_a_missing_part_of_a_state_is_named(run):
    def without(content):
        whole = json.loads(content)
        del whole["counters"]["episodes"]
        return json.dumps(whole).encode()

    tamper(run, "state.json", without)
    answer = go_on(run)
    assert answer.status == 2 and "episodes" in answer.said, answer


JUNK = [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b"PK\x03\x04", b"\x93NUMPY"]
NAMES = ["state.json", "manifest.json", "tree.safetensors", "rollout.npz", "best.safetensors", "memory/memory.json"]


@pytest.mark.parametrize(("name", "number"), [(name, k) for k, name in enumerate(NAMES)])
def test_a_file_of_a_checkpoint_with_any_content_is_refused_or_gone_on_without(run, name, number):
    tamper(run, name, JUNK[number]) if name != "manifest.json" else (newest(run) / name).write_bytes(JUNK[number])
    go_on(run)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), itertools.product(NAMES, range(len(JUNK))))
def test_any_file_of_a_checkpoint_with_any_content_is_refused_or_gone_on_without(run, name, number):
    tamper(run, name, JUNK[number]) if name != "manifest.json" else (newest(run) / name).write_bytes(JUNK[number])
    go_on(run)


ARRAYS = {
    "other shape": lambda a: np.zeros((3, 2), a.dtype),
    "other type": lambda a: np.zeros(a.shape, np.int8),
    "not finite": lambda a: np.full(a.shape, np.nan).astype(a.dtype) if a.dtype.kind == "f" else a,
    "out of range": lambda a: np.full_like(a, 2**31 - 1) if a.dtype.kind in "iu" else a,
    "negative": lambda a: np.full_like(a, -7) if a.dtype.kind == "i" else a,
    "text": lambda a: np.full(a.shape, "x"),
}


@pytest.mark.parametrize("way", ARRAYS)
def test_unfinished_episodes_of_any_shape_and_type_are_refused_or_gone_on_with(run, way, tmp_path):
    def change(_):
        with np.load(newest(run) / "rollout.npz") as stored:
            arrays = {name: ARRAYS[way](array) for name, array in stored.items()}
        np.savez(tmp_path / "x.npz", **arrays)
        return (tmp_path / "x.npz").read_bytes()

    tamper(run, "rollout.npz", change)
    go_on(run)


@pytest.mark.parametrize("way", [way for way in ARRAYS if way != "text"])
def test_parameters_of_any_shape_and_type_are_refused_or_gone_on_with(run, way):
    def change(content):
        return safetensors.save({name: ARRAYS[way](array) for name, array in safetensors.load(content).items()})

    tamper(run, "tree.safetensors", change)
    go_on(run)


def segment_of(run):
    return sorted((run / "replay").glob("*.npz"))[0]


@pytest.mark.parametrize("way", ARRAYS)
@pytest.mark.parametrize("field", ["lengths", "obs", "avail", "action", "won"])
def test_episodes_of_any_shape_and_type_are_refused_or_gone_on_with(run, way, field):
    """The segment's checksum is made to fit in both checkpoints."""
    for path in (run / "replay").glob("*.npz"):
        with np.load(path) as stored:
            arrays = dict(stored)
        np.savez(path, **{**arrays, field: ARRAYS[way](arrays[field])})

        def fit(content, path=path):
            whole = json.loads(content)
            for segment in whole["segments"]:
                if segment["name"] == path.name:
                    segment |= Fingerprint.of(path)._asdict()
            return json.dumps(whole).encode()

        tamper(run, "state.json", fit)
    go_on(run)


# Settings that were edited


@pytest.mark.parametrize(
    ("name", "value"),
    [("rollout.chunk", 3), ("rollout.envs", 3), ("agent.hidden", 9), ("env_args", {"rows": 7}), ("memory.key_dim", 3)],
)
def test_a_setting_that_shapes_the_checkpoint_is_named(run, name, value):
    content = changed(*name.split("."), value=value)((run / "config.json").read_bytes())
    (run / "config.json").write_bytes(content)
    before = sorted(path for path in run.rglob("*") if path.name != ".lock")
    answer = go_on(run)
    assert answer.status == 2 and name in answer.said, answer
    assert sorted(path for path in run.rglob("*") if path.name != ".lock") == before


# The best team, and an exported one

SUMMARY = ["file", "bytes", "crc", "step", "test_return", "test_win_rate"]


@pytest.mark.parametrize("field", SUMMARY)
def test_a_best_team_described_by_anything_is_refused_or_played(run, field):
    for wrong in WRONG:
        path = run / "best" / "summary.json"
        before = path.read_bytes()
        path.write_bytes(changed(field, value=wrong)(before))
        answer = command("evaluate", run, "--episodes", 1)
        assert answer.status == (0 if answer.out else 2), answer
        assert answer.status == 0 or "best" in answer.said, answer
        path.write_bytes(before)


@pytest.mark.parametrize("field", ["format", "config", "step", "evaluation", "env", "task", "network"])
def test_an_exported_team_described_by_anything_is_refused_or_played(trained, tmp_path, field):
    shutil.copytree(trained / "team", tmp_path / "team")
    path = tmp_path / "team" / "team.json"
    before = path.read_bytes()
    for wrong in WRONG if field in ("step", "evaluation") else WRONG[:6]:
        path.write_bytes(changed(field, value=wrong)(before))
        answer = command("evaluate", tmp_path / "team", "--episodes", 1)
        assert answer.status in (0, 2), answer
        assert answer.status == 0 or "team" in answer.said, answer


HOSTILE = [
    'a [b] it\'s "x" :x: [/bold] 日本 $(y)',
    *("a [b] (c)", "it's", 'say "x"', "日本語", "[/bold]", ":x:", "x" * 200),
]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in HOSTILE[1:]]


@pytest.mark.parametrize("name", [HOSTILE[0], *SLOW])
def test_teams_are_found_and_written_whatever_the_folder_is_called(run, tmp_path, name):
    place = tmp_path / f"_{name}"
    place.parent.mkdir(parents=True, exist_ok=True)  # "[/bold]" is two folders
    run.rename(place)
    for words in (
        ["evaluate", place, "--episodes", 1],
        ["render", place, "--tries", 1, "--out", tmp_path / f"{name}.gif"],
        ["export-team", place, tmp_path / f"team {name}"],
        ["table", place],
        ["plot", place, "--out", tmp_path / f"{name}.png"],
        ["export", place, tmp_path / f"{name}.json"],
        ["report", place, "--out", tmp_path / f"{name}.html"],
        ["resume", place, "--steps", 96],
    ):
        answer = command(*words)
        assert answer.status == 0, (words, answer)
    assert name in answer.said
