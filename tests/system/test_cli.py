"""The command line from outside: every command, every kind of bad input, Ctrl-C and SIGTERM."""

import json
import runpy
import signal
import time

import pytest
from PIL import Image

from emu import __version__, envs
from emu.cli.app import main
from emu.errors import EnvError

from .processes import emu, start, tiny_train

MATRIX = {"replay.episodes": 32, "steps": 200}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, trained by the command itself."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    done = emu(*tiny_train(folder, "vdn", "matrix/coordination", **MATRIX))
    assert done.returncode == 0, done.stderr
    return folder, done


def test_train_says_what_it_does_and_how_it_ended(run):
    folder, done = run
    for word in ("vdn on matrix/coordination, seed 0", "2 agents, 3 actions", "at most 32 episodes and", "steps/s"):
        assert word in done.stderr
    assert str(folder) in done.stdout and "test return" in done.stdout
    for name in ("config.json", "meta.json", "metrics.jsonl", "timing.jsonl", "best/summary.json"):
        assert (folder / name).exists()


def test_evaluate(run):
    done = emu("evaluate", run[0], "--episodes", 3, "--json")
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    assert values["episodes"] == 3 and values["test_length"] == 1.0


def test_evaluate_the_last_team(run):
    step = max(int(path.name) for path in (run[0] / "checkpoints").iterdir())
    for which in ("last", str(step)):
        done = emu("evaluate", run[0], "--episodes", 2, "--which", which, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["trained_steps"] == step


def test_export_team(run, tmp_path):
    done = emu("export-team", run[0], tmp_path / "team")
    assert done.returncode == 0, done.stderr
    assert "team.json, team.safetensors" in done.stdout
    evaluated = [emu("evaluate", folder, "--episodes", 3, "--json").stdout for folder in (run[0], tmp_path / "team")]
    assert evaluated[0] == evaluated[1] and json.loads(evaluated[0])["episodes"] == 3


def test_quiet_is_quiet(tmp_path):
    done = emu(*tiny_train(tmp_path / "run", "vdn", "matrix/coordination", **MATRIX), "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_render(run, tmp_path):
    done = emu("render", run[0], "--out", tmp_path / "team.gif", "--tries", 1)
    assert done.returncode == 0, done.stderr
    assert "1 steps, return" in done.stdout
    with Image.open(tmp_path / "team.gif") as gif:
        assert gif.n_frames == 2


def test_plot(run, tmp_path):
    done = emu("plot", run[0].parent, "--out", tmp_path / "curves.png", "--metric", "test_return")
    assert done.returncode == 0, done.stderr
    assert "1 run" in done.stdout and Image.open(tmp_path / "curves.png").size[0] > 500


def test_resume_of_a_finished_run(run):
    done = emu("resume", run[0])
    assert done.returncode == 0 and "is complete" in done.stderr and "test return" in done.stdout


def test_check_and_doctor():
    checked = emu("check", "matrix/climbing", "--episodes", 2)
    assert checked.returncode == 0 and "keeps its contract" in checked.stdout
    doctor = emu("doctor")
    assert doctor.returncode == 0
    for word in ("emu-marl", "Python", "jax", "devices", "extra 'gpu'"):
        assert word in doctor.stdout


def test_lists(capsys):
    assert main(["envs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["gridworld"]["obs_dim"] == 46 and listed["gridworld"]["summary"]
    assert main(["algos", "--json"]) == 0
    assert {"vdn", "qmix", "qplex"} <= set(json.loads(capsys.readouterr().out))
    assert main(["envs"]) == 0 and main(["algos"]) == 0
    text = capsys.readouterr().out
    assert "gridworld/tiny" in text and "qmix" in text


def test_the_list_of_environments_fits_80_columns_and_a_name_in_full_tells_all(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and sum("smac/3m " in line for line in lines) == 1
    row = next(line for line in lines if line.startswith("gridworld/tiny "))
    assert row.split()[1:4] == ["2", "5", "12"]
    assert main(["envs", "matrix/"]) == 0
    filtered = capsys.readouterr().out
    assert "matrix/climbing" in filtered and "gridworld" not in filtered
    for words in ("gridworld", "gridworld/ti"):
        assert main(["envs", words]) == 0
        assert "state dim" in capsys.readouterr().out
    assert main(["envs", "gridworld"]) == 0
    assert "Also: gridworld/small, gridworld/tiny" in capsys.readouterr().out
    assert main(["envs", "chess"]) == 2
    assert "gridworld/tiny, " in capsys.readouterr().err, "all names are shown where none is close"


def test_an_environment_whose_package_is_missing_is_listed_all_the_same(capsys, monkeypatch):
    def absent(name, **arguments):
        if name.startswith("atari/"):
            raise EnvError("ale-py is not installed: pip install 'emu-marl[atari]'.")
        return make(name, **arguments)

    make = envs.make
    monkeypatch.setattr(envs, "make", absent)
    assert main(["envs", "--json"]) == 0
    assert "pip install" in json.loads(capsys.readouterr().out)["atari/breakout"]["missing"]
    assert main(["envs"]) == 0
    assert "emu-marl[atari]" in "".join(capsys.readouterr().out.split())


def test_help(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for word in ("demo", "train", "resume", "evaluate", "render", "plot", "envs", "algos", "check", "doctor"):
        assert f"emu {word}" in text
    assert main(["--version"]) == 0
    assert main([]) == 2


def test_the_package_is_a_command_too(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["emu", "--version"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("emu", run_name="__main__")
    assert end.value.code == 0 and capsys.readouterr().out.strip() == __version__


def test_every_option_of_train_has_a_help_text():
    done = emu("train", "--help", COLUMNS=80)  # narrow: one column of options, each text below its option
    assert done.returncode == 0
    lines = [line.strip("│") for line in done.stdout.splitlines()]
    starts = [number for number, line in enumerate(lines) if line.startswith(" --")]
    assert len(starts) > 60
    for number in starts:
        below = next(line for line in lines[number + 1 :] if line.startswith(("      ", " --", "──")))
        assert below.startswith("      ") and not below.strip().startswith("(default"), lines[number]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "No command is called 'trian'. Did you mean 'train'?"),
        (["train", "--algo", "qmx"], "No algorithm is called 'qmx'. Did you mean 'qmix'?"),
        (["train", "--env", "gridwrld", "--run-dir", "x"], "No environment is called 'gridwrld'. Did you mean"),
        (["train", "--env-args", '{"penalti": 1}', "--run-dir", "x"], "has no argument 'penalti'"),
        (["train", "--learner.gamma", "1.5"], "learner.gamma must lie in [0, 1], not 1.5"),
        (["train", "--seed=-1"], "seed must lie in [0, 4294967295], not -1"),
        (["resume", "nowhere"], "nowhere is not a run folder"),
        (["evaluate", "nowhere"], "nowhere is not a run folder"),
        (["evaluate", "nowhere", "--which", "newest"], "--which must be best, last, or the step"),
        (["render", "nowhere", "--fps", "0"], "--fps must lie between"),
        (["evaluate", "nowhere", "--episodes", "0"], "--episodes must lie between 1 and"),
        (["plot", "nowhere"], "nowhere does not exist"),
        (["check", "matrix/climbin"], "Did you mean 'matrix/climbing'?"),
    ],
)
def test_bad_input_is_answered_with_a_message_and_status_2(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [["--lerner.gamma", "0.9"], ["--steps", "many"], ["--mixer.kind", "qmixx"], ["--env-args", "3"]]
)
def test_options_that_do_not_parse_are_answered_with_status_2(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", *words])
    assert stop.value.code == 2
    assert words[0].lstrip("-").split(".")[0] in "".join(capsys.readouterr())


def test_a_misspelt_option_gets_a_suggestion():
    done = emu("train", "--learner.gama", "0.9")
    assert done.returncode == 2 and "--learner.gamma" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_used_folder_is_refused(run):
    done = emu(*tiny_train(run[0], "vdn", "matrix/coordination", **MATRIX))
    assert done.returncode == 2 and "already exists" in done.stderr and "Traceback" not in done.stderr


def wait_for_rows(folder, count, process):
    """Until the run has written so many rows."""
    for _ in range(1200):
        path = folder / "metrics.jsonl"
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("the run wrote nothing")


def test_signals_save_and_resume_goes_on(tmp_path):
    folder = tmp_path / "run"
    settings = {"steps": 1_000_000, "replay.episodes": 32, "checkpoint.interval": 10**9}
    process = start(*tiny_train(folder, "vdn", "matrix/coordination", **settings))
    for count, number, status in ((5, signal.SIGINT, 130), (12, signal.SIGTERM, 143)):
        wait_for_rows(folder, count, process)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == status, stderr
        assert f"{number.name}: saving, then stopping." in stderr and "Traceback" not in stderr
        assert f"Go on with: emu resume {folder}" in stdout
        assert len(list((folder / "checkpoints").iterdir())) >= 1
        steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert steps == sorted(steps)
        process = start("resume", folder)
    wait_for_rows(folder, len(steps) + 3, process)
    refused = emu("resume", folder)
    assert refused.returncode == 2 and f"in use by another process (pid {process.pid})" in refused.stderr
    process.kill()
    process.communicate()
