"""Files of a finished run with any content at all, beside a run that is whole: tables, exports, plots and reports use
the whole one, name the other where it is left out, and never fail."""

import itertools
import json

import numpy as np
import pytest

from study.synthetic import write_run

from .common import command

DEEP = b"[" * 100_000
JUNK = {
    "empty": b"",
    "null": b"null",
    "a number": b"3",
    "a word": b'"x"',
    "a list": b"[]",
    "nothing in it": b"{}",
    "lists in lists": b"[[[]]]",
    "cut": b'{"a": ',
    "no text": b"\xff\xfe\x00\x80",
    "not finite": b"NaN",
    "too deep": DEEP,
    "too deep, objects": b'{"a":' * 50_000,
    "zeros": b"\0" * 100,
}
WRONG = [None, True, -1, 1.5, 1e400, 10**400, "x", "[/bold]", [], [1], {}, {"a": 1}, [[]]]

# What a run has beside metrics: the field that is changed, by the file it stands in.
ABSOLUTE = {"step": 200, "episodes": 3, "win_rate": [1, 0, 1], "return": [1.0, 2.0, 3.0], "length": [5, 6, 7]}
STUDY = {
    "name": "s",
    "title": "t",
    "scale": "laptop",
    "command": "emu",
    "runs": [{"folder": "broken", "label": "one"}, {"folder": "whole", "label": "two"}],
}
META = {"env": {"name": "gridworld", "version": "1", "has_goal": True}, "packages": {}, "command": ["emu"], "emu": "0"}


@pytest.fixture
def runs(tmp_path):
    """A folder with two runs, of which one is going to be broken."""
    write_run(tmp_path / "whole", seed=0)
    write_run(tmp_path / "broken", seed=1)
    return tmp_path


def look(folder, *more):
    """Every command that only looks, on a folder in which one run is whole."""
    answers = [
        command("table", folder),
        command("export", folder, folder / "out" / "runs.json"),
        command("report", folder, "--out", folder / "out" / "page.html"),
        *(command(*words) for words in more),
    ]
    return answers


def require_used(folder, answers):
    """The whole run was shown, and the other one if it was not named."""
    for answer in answers:
        assert answer.status == 0, answer
        assert "Traceback" not in answer.err
    (told,) = [answer.said for answer in answers if "runs.json" in answer.out]
    named = "Left out:" in told and "broken" in told
    exported = json.loads((folder / "out" / "runs.json").read_text())
    seeds = {seed for task in exported["gridworld"]["gridworld"].values() for seed in task}
    assert seeds == ({"seed_0"} if named else {"seed_0", "seed_1"}), (seeds, answers)


FILES = ("config.json", "meta.json", "absolute.json", "metrics.jsonl", "timing.jsonl", "metrics.crc")


@pytest.mark.parametrize(("name", "junk"), itertools.product(FILES, JUNK))
def test_a_file_of_a_run_with_any_content_costs_that_run_at_most(runs, name, junk):
    if (name, junk) == ("config.json", "nothing in it"):
        pytest.skip("an empty object asks for the default of every setting")
    (runs / "broken" / name).write_bytes(JUNK[junk])
    require_used(runs, look(runs))


@pytest.mark.parametrize("junk", JUNK)
def test_a_row_of_metrics_with_any_content_costs_that_row_at_most(runs, junk):
    path = runs / "broken" / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], JUNK[junk].replace(b"\n", b"") + b"\n", *lines[2:]]))
    require_used(runs, look(runs))


@pytest.mark.parametrize(
    ("field", "number"), itertools.product(("step", "test_return", "test_win_rate"), range(len(WRONG)))
)
def test_a_value_of_metrics_of_any_type_costs_that_run_at_most(runs, field, number):
    path = runs / "broken" / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-2][field] = WRONG[number]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    require_used(runs, look(runs))


@pytest.mark.parametrize(("field", "number"), itertools.product(ABSOLUTE, range(len(WRONG))))
def test_an_absolute_metric_of_any_type_costs_that_run_at_most(runs, field, number):
    (runs / "broken" / "absolute.json").write_text(json.dumps({**ABSOLUTE, field: WRONG[number]}))
    require_used(runs, look(runs))


@pytest.mark.parametrize(
    ("field", "number"), itertools.product(("env", "packages", "command", "emu"), range(len(WRONG)))
)
def test_a_provenance_of_any_type_costs_that_run_at_most(runs, field, number):
    (runs / "broken" / "meta.json").write_text(json.dumps({**META, field: WRONG[number]}))
    require_used(runs, look(runs)[1:])
    assert command("table", runs, "--mix-versions").status == 0


@pytest.mark.parametrize(("field", "number"), itertools.product(("name", "version", "has_goal"), range(len(WRONG))))
def test_a_described_environment_of_any_type_costs_that_run_at_most(runs, field, number):
    (runs / "broken" / "meta.json").write_text(json.dumps({**META, "env": {**META["env"], field: WRONG[number]}}))
    assert command("table", runs, "--mix-versions").status == 0
    require_used(runs, look(runs)[1:])


@pytest.mark.parametrize(
    "content", [*JUNK.values(), *(json.dumps({**STUDY, field: wrong}).encode() for field in STUDY for wrong in WRONG)]
)
def test_a_study_of_any_content_is_read_or_refused_by_name(runs, content):
    (runs / "study.json").write_bytes(content)
    for answer in look(runs):
        assert answer.status in (0, 2), answer
        assert answer.status == 0 or "study.json" in answer.said, answer.said


@pytest.mark.parametrize("field", ["folder", "label", "seed", "overrides"])
def test_an_entry_of_a_study_of_any_content_is_read_or_refused_by_name(runs, field):
    for wrong in WRONG:
        entry = {**STUDY["runs"][0], field: wrong}
        (runs / "study.json").write_text(json.dumps({**STUDY, "runs": [entry, STUDY["runs"][1]]}))
        answer = command("table", runs)
        assert answer.status == 0 or "study.json" in answer.said, answer.said


@pytest.mark.parametrize("kind", ["curves", "ablation", "recall", "profile", "improvement", "iqm"])
def test_figures_are_drawn_of_what_is_whole(runs, kind):
    write_run(runs / "other", "vdn")
    for run in ("whole", "other"):
        (runs / run / "absolute.json").write_text(json.dumps(ABSOLUTE))
    for name, content in (("config.json", DEEP), ("absolute.json", b"{}"), ("metrics.jsonl", b"3\n")):
        broken = write_run(runs / f"broken {name} [x]", seed=2)
        (broken / name).write_bytes(content)
    answer = command("plot", runs, "--kind", kind, "--out", runs / "out" / "it's [a] picture.png")
    if kind == "recall":  # these runs have no memory
        assert answer.status == 2, answer
        return
    assert answer.status == 0 and answer.err.count("Left out:") == 3, answer
    assert (runs / "out" / "it's [a] picture.png").stat().st_size > 1000


# Snapshots


def snapshot(**changes):
    """The arrays of one, as `emu.run.snapshots` writes them."""
    n, t, keys, states = 6, 4, 4, 84
    rng = np.random.default_rng(0)
    arrays = {
        "format": np.array(1),
        "step": np.array(100),
        "size": np.array(n),
        "radius": np.array(0.1),
        "won": np.array(True),
    }
    for part, rows in (("memory", n), ("episode", t)):
        arrays[f"{part}_key"] = rng.normal(size=(rows, keys)).astype(np.float32)
        arrays[f"{part}_state"] = np.zeros((rows, states), np.float16)
        for name in ("best_return", "total"):
            arrays[f"{part}_{name}"] = np.zeros(rows, np.float32)
        for name in ("desirable", "found"):
            arrays[f"{part}_{name}"] = np.zeros(rows, bool)
        for name in ("visits", "desirable_visits", "time"):
            arrays[f"{part}_{name}"] = np.zeros(rows, np.int32)
    return {name: array for name, array in {**arrays, **changes}.items() if array is not None}


BAD_ARRAYS = {
    "missing": None,
    "no numbers": np.array(["x"] * 6),
    "a scalar": np.array(3.0),
    "empty": np.zeros(0),
    "one row less": np.zeros((5, 4), np.float32),
    "one more axis": np.zeros((6, 4, 2), np.float32),
    "not finite": np.full((6, 4), np.nan, np.float32),
    "infinite": np.full(6, np.inf, np.float32),
    "complex": np.zeros((6, 4), complex),
    "a date": np.zeros(6, "datetime64[s]"),
    "void": np.zeros(6, "V7"),
}
BAD_FIELDS = (
    "memory_key",
    "memory_state",
    "memory_visits",
    "memory_best_return",
    "episode_key",
    "episode_time",
    "won",
    "step",
)


@pytest.fixture
def remembering(tmp_path):
    write_run(tmp_path / "run", "emu_qmix", memory=True)
    (tmp_path / "run" / "snapshots").mkdir()
    return tmp_path


def report_on(folder):
    return command("report", folder, "--out", folder / "page.html")


def test_a_whole_snapshot_is_shown(remembering):
    np.savez(remembering / "run" / "snapshots" / "000000000100.npz", **snapshot())
    answer = report_on(remembering)
    assert (
        answer.status == 0 and "snapshot" not in answer.err and '"step":100' in (remembering / "page.html").read_text()
    )


@pytest.mark.parametrize(("field", "bad"), itertools.product(BAD_FIELDS, BAD_ARRAYS))
def test_a_snapshot_with_any_arrays_is_left_out_of_the_report(remembering, field, bad):
    path = remembering / "run" / "snapshots" / "000000000100.npz"
    np.savez(path, **snapshot(**{field: BAD_ARRAYS[bad]}))
    answer = report_on(remembering)
    assert answer.status == 0, answer
    assert "000000000100.npz" in answer.said or (field, bad) == ("won", "a scalar"), answer


@pytest.mark.parametrize("junk", JUNK)
def test_a_snapshot_with_any_content_is_left_out_of_the_report(remembering, junk):
    (remembering / "run" / "snapshots" / "000000000100.npz").write_bytes(JUNK[junk])
    answer = report_on(remembering)
    assert answer.status == 0 and "000000000100.npz" in answer.said, answer


class Payload:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


def test_a_pickle_among_the_arrays_of_a_snapshot_is_not_read(remembering):
    arrays = snapshot(memory_visits=np.array([Payload()] * 6, object))
    np.savez(remembering / "run" / "snapshots" / "000000000100.npz", allow_pickle=True, **arrays)
    answer = report_on(remembering)
    assert answer.status == 0 and "000000000100.npz" in answer.said and "executed" not in answer.said
