"""Hostile and careless environments: `emu check` and `emu train` end with a message of ours and leave nothing running.

The fast half looks into them within this process where that is safe; the slow half starts the commands for every one.
"""

from __future__ import annotations

import json
import os

import pytest

from attack.foreign import GYM, MARL, ZOO
from attack.hostile import LETHAL, MISDESCRIBED, UNTIDY, WRONG
from attack.hostile_compiled import COMPILED_LETHAL, PLAYED, TRACED
from emu import envs
from emu.cli.app import main
from emu.envs.check import check_env
from emu.envs.check_process import Limits, check_in_process
from emu.envs.workers.guardian import descendants
from emu.errors import EnvError
from processes_alive import all_gone
from system.processes import emu as run_command
from toys import TINY

HERE = os.path.dirname(os.path.dirname(__file__))
HOSTILE, COMPILED = "attack.hostile:Hostile", "attack.hostile_compiled:Compiled"


def complaint(name, **args):
    """What the checker says, within this process."""
    with pytest.raises(EnvError) as error:
        check_env(envs.make(name, **args), episodes=6)
    return str(error.value)


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_python_environment_is_told_its_fault(fault):
    assert WRONG[fault][2] in complaint(HOSTILE, fault=fault)


@pytest.mark.parametrize("fault", MISDESCRIBED)
def test_a_wrong_specification_is_told_its_fault(fault):
    assert MISDESCRIBED[fault][1] in complaint(HOSTILE, fault=fault)


@pytest.mark.parametrize("fault", TRACED | PLAYED)
def test_a_wrong_compiled_environment_is_told_its_fault(fault):
    assert (TRACED | PLAYED)[fault][2] in complaint(COMPILED, fault=fault)


@pytest.mark.parametrize("fault", MARL)
def test_a_wrong_pymarl_environment_is_told_its_fault(fault):
    assert MARL[fault][2] in complaint("pymarl:attack.foreign:Marl", fault=fault)


@pytest.mark.parametrize("fault", GYM)
def test_a_wrong_gymnasium_environment_is_told_its_fault(fault):
    assert GYM[fault][2] in complaint(gym_name(), fault=fault)


@pytest.mark.parametrize("kind", ["obs", "actions", "bounds"])
def test_a_space_that_gymnasium_has_and_emu_has_not_is_named(kind):
    assert "EMU needs" in complaint(gym_name(), kind=kind)


@pytest.mark.parametrize("fault", ZOO)
def test_a_wrong_pettingzoo_environment_is_told_its_fault(fault):
    pytest.importorskip("pettingzoo")
    assert ZOO[fault][2] in complaint("pettingzoo:attack.foreign:zoo", fault=fault)


@pytest.mark.parametrize("kind", ["obs", "actions", "nobody", "limit"])
def test_what_pettingzoo_allows_and_emu_does_not_is_named(kind):
    pytest.importorskip("pettingzoo")
    assert "attack.foreign" in complaint("pettingzoo:attack.foreign:zoo", kind=kind)


def gym_name():
    gymnasium = pytest.importorskip("gymnasium")
    if "Attack-v0" not in gymnasium.registry:
        options = {"disable_env_checker": True, "order_enforce": False, "max_episode_steps": None}
        gymnasium.register("Attack-v0", entry_point="attack.foreign:gym", **options)
        gymnasium.registry["Attack-v0"].max_episode_steps = 9
    return "gymnasium:Attack-v0"


UNMADE = {
    "raises": ("attack.hostile:Unmade", {}, "RuntimeError: no engine (tests/attack/hostile.py"),
    "exits": ("attack.hostile:Unmade", {"how": "exit"}, "SystemExit: 0"),
    "recursion": ("attack.hostile:Unmade", {"how": "recursion"}, "RecursionError"),
    "daemon": ("attack.hostile:Unmade", {"how": "daemon"}, "RuntimeError: no engine"),
    "no spec": ("attack.hostile:Unmade", {"how": "fork"}, "has no `spec` of type EnvSpec"),
    "spec dictionary": ("attack.hostile:Unmade", {"how": "spec"}, "has no `spec` of type EnvSpec"),
    "spec raises": ("attack.hostile:Speaking", {}, "RuntimeError: not yet connected (tests/attack/hostile.py"),
    "abstract": ("attack.hostile:Abstract", {}, "cannot be made"),
    "no environment": ("attack.hostile:NUMBER", {}, "is no environment"),
    "no annotation": ("attack.hostile:not_annotated", {}, "is no environment"),
    "no name": ("attack.hostile:Absent", {}, "has no 'Absent'"),
    "import exits": ("attack.bad_import:Any", {}, "cannot be imported: SystemExit: 0 (tests/attack/bad_import.py:5"),
    "argument": (HOSTILE, {"colour": 1}, "has no argument 'colour'"),
    "pymarl exits": ("pymarl:attack.bad_import:Any", {}, "SystemExit: 0"),
    "pymarl argument": ("pymarl:attack.foreign:Marl", {"colour": 1}, "cannot be made from"),
    "pettingzoo exits": ("pettingzoo:attack.bad_import:any", {}, "SystemExit: 0"),
}


@pytest.mark.parametrize("how", UNMADE)
def test_what_cannot_be_made_is_told_why(how):
    name, args, words = UNMADE[how]
    before = descendants(os.getpid())
    assert words in complaint(name, **args)
    assert all_gone(set(descendants(os.getpid())) - set(before))


def check(name, limit=40, **args):
    """`emu check` in a process of its own, as a user starts it."""
    words = ["check", name, "--env-args", json.dumps(args), "--timeout", limit, "--gigabytes", "0.9"]
    done = run_command(*words, PYTHONPATH=os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]))
    assert "Traceback" not in done.stderr and "\x1b[2J" not in done.stdout + done.stderr
    return done


def slow_but(names, *fast):
    """The names as parameters of a test, all slow but a few."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def lethal_check(fault, table, name):
    done = check(name, 25 if "come back" in table[fault][2] or "stopped" in table[fault][2] else 60, fault=fault)
    assert done.returncode == 2 and done.stderr.startswith("error ")
    assert table[fault][2] in done.stderr


@pytest.mark.parametrize("fault", slow_but(LETHAL, "leaves", "crashes", "forks"))
def test_an_environment_that_harms_its_process_is_described(fault):
    lethal_check(fault, LETHAL, HOSTILE)


TOO_MUCH = {
    "a call": (Limits(call=4.0), "did not come back within 4 seconds"),
    "all of it": (Limits(total=4.0), "the check was not done after"),
    "memory": (Limits(call=20.0, memory=1e6), "took more than 0.0 GB of memory"),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_check_that_takes_too_much_is_ended_and_described(what):
    """Whatever it was doing then: on a busy machine that may be its import."""
    limits, words = TOO_MUCH[what]
    before = descendants(os.getpid())
    verdict = check_in_process(HOSTILE, {"fault": "hangs"}, 6, limits)
    assert words in " ".join(verdict.faults)
    assert all_gone(set(descendants(os.getpid())) - set(before))


@pytest.mark.slow
@pytest.mark.parametrize("fault", COMPILED_LETHAL)
def test_a_compiled_environment_that_never_answers_is_described(fault):
    lethal_check(fault, COMPILED_LETHAL, COMPILED)


@pytest.mark.parametrize("fault", slow_but(UNTIDY, "daemons"))
def test_an_untidy_environment_passes_and_leaves_nothing(fault):
    done = check(HOSTILE, 60, fault=fault)
    assert done.returncode == 0 and UNTIDY[fault][2] in done.stderr


@pytest.mark.parametrize("fault", slow_but([*WRONG, *MISDESCRIBED], "step exits"))
def test_the_command_says_what_the_checker_says(fault):
    words = WRONG[fault][2] if fault in WRONG else MISDESCRIBED[fault][1]
    done = check(HOSTILE, 60, fault=fault)
    assert done.returncode == 2 and words in done.stderr


TRAIN = {**TINY, "steps": 60, "rollout.workers": 1, "rollout.envs": 2, "rollout.max_failures": 1, "rollout.timeout": 20}


def train(folder, capsys, name, /, **args):
    """`emu train` in this process; its status, and what it said. Nothing that it started is left."""
    before = descendants(os.getpid())
    words = ["train", "--algo", "vdn", "--env", name, "--env-args", json.dumps(args), "--run-dir", str(folder)]
    for option, value in TRAIN.items():
        flag = option.replace("_", "-")
        words += [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    status = main(words)
    assert all_gone(set(descendants(os.getpid())) - set(before))
    return status, capsys.readouterr().err


FINE = {"both ends", "return outside", "avail halves", "range turned", "range NaN", "picture", "close raises"}
FAST = ("obs text", "reward 1e300", "terminated text", "step three", "agents 2.0", "limit enormous")


@pytest.mark.parametrize("fault", slow_but([*WRONG, *MISDESCRIBED], *FAST))
def test_training_in_a_wrong_python_environment_ends_with_a_message(tmp_path, capsys, fault):
    status, said = train(tmp_path / "run", capsys, HOSTILE, fault=fault)
    assert (status == 2 and "error " in said) or (status == 0 and fault in FINE)


@pytest.mark.parametrize("fault", slow_but([*LETHAL, *UNTIDY], "leaves", "detached"))
def test_training_in_a_harmful_environment_ends_and_leaves_nothing(tmp_path, capsys, fault):
    if fault == "eats memory":
        pytest.skip("a worker may take what the machine has")
    status, said = train(tmp_path / "run", capsys, HOSTILE, fault=fault)
    harmless = fault in UNTIDY or fault.startswith("close ") or fault == "forks"
    assert status == 0 if harmless else status == 2 and "error " in said


@pytest.mark.parametrize("how", ["setsid", "daemon"])
def test_what_an_environment_starts_when_it_is_made_ends_with_the_run(tmp_path, capsys, how):
    """A run makes one itself, to read its specification; its workers make the others."""
    programs = tmp_path / "programs"
    programs.mkdir()
    args = {"folder": str(programs), "how": how, "when": "make"}
    status, said = train(tmp_path / "run", capsys, "host_envs:Runaway", **args)
    assert status == 0, said
    started = [int(path.name) for path in programs.iterdir()]
    assert len(started) >= 2 and all_gone(started)


@pytest.mark.parametrize("fault", slow_but(TRACED | PLAYED, "exits", "obs NaN"))
def test_training_in_a_wrong_compiled_environment_ends_with_a_message(tmp_path, capsys, fault):
    status, said = train(tmp_path / "run", capsys, COMPILED, fault=fault)
    assert (status == 2 and "error " in said) or (status == 0 and fault in FINE)


@pytest.mark.slow
@pytest.mark.parametrize("fault", MARL)
def test_training_in_a_wrong_pymarl_environment_ends_with_a_message(tmp_path, capsys, fault):
    status, said = train(tmp_path / "run", capsys, "pymarl:attack.foreign:Marl", fault=fault)
    assert status == 2 and "error " in said


@pytest.mark.slow
@pytest.mark.parametrize("fault", ZOO)
def test_training_in_a_wrong_pettingzoo_environment_ends_with_a_message(tmp_path, capsys, fault):
    pytest.importorskip("pettingzoo")
    status, said = train(tmp_path / "run", capsys, "pettingzoo:attack.foreign:zoo", fault=fault)
    assert status == 2 and "error " in said


@pytest.mark.parametrize("how", slow_but(UNMADE, "raises", "import exits"))
def test_training_what_cannot_be_made_ends_with_a_message(tmp_path, capsys, how):
    name, args, words = UNMADE[how]
    status, said = train(tmp_path / "run", capsys, name, **args)
    assert status == 2 and words in said and not (tmp_path / "run").exists()


def test_there_are_at_least_eighty_of_them():
    tables = (WRONG, MISDESCRIBED, LETHAL, UNTIDY, TRACED, PLAYED, COMPILED_LETHAL, MARL, GYM, ZOO, UNMADE)
    assert sum(map(len, tables)) >= 200
