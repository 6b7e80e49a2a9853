"""Commands that cannot be right: each is refused with status 2 and a message that names what is wrong."""

import json

import pytest

from .common import accepting_nothing, command, require_refused

LONG, DEEP_PATH, NULL = "a" * 300, "/".join(["a" * 200] * 30), "a\0b"
MARKUP = "[/bold]"
SWEEP = ["sweep", "--algos", "qmix", "--envs", "gridworld", "--out", "s"]
TRAIN = {
    # which environment
    "--env :": "names no environment",
    "--env x:": "names no environment",
    "--env :x": "names no environment",
    "--env ::": "names no environment",
    "--env .:x": "names no environment",
    "--env ..x:Y": "names no environment",
    "--env os:system": "Nothing of it was called",
    "--env os:": "names no environment",
    "--env os:path": "is no environment",
    "--env os.path:join": "is no environment",
    "--env builtins:exec": "is no environment",
    "--env subprocess:Popen": "is no environment",
    "--env gridwrld": "Did you mean 'gridworld",
    "--env=": "No environment is called ''",
    "--env gymnasium:": "names no environment",
    "--env gymnasium:NoSuch-v9": "NoSuch",
    "--env pymarl:": "pymarl:",
    "--env pymarl:os:system": "os:system",
    "--env pymarl:nothing": "nothing",
    "--env pettingzoo:": "pettingzoo:",
    "--env pettingzoo:os": "os",
    "--env pettingzoo:nothing.at_all": "nothing",
    "--env smac/": "smac/",
    "--env smac/99m": "smac/99m",
    "--env smacv2/nobody": "smacv2/nobody",
    "--env atari/Nothing": "Nothing",
    # which algorithm
    "--algo nothing": "nothing",
    "--algo=": "''",
    "--algo +fast": "''",
    "--algo qmix+": "No variant is called",
    "--algo qmix+nothing": "nothing",
    "--rules nothing": "nothing",
    # arguments of the environment
    "--env-args null": "JSON object",
    "--env-args []": "JSON object",
    "--env-args 3": "JSON object",
    "--env-args {": "env-args",
    '--env-args {"nothing":1}': "no argument 'nothing'",
    '--env-args {"penalty":null}': "'penalty'",
    '--env-args {"penalty":"x"}': "'penalty'",
    '--env-args {"penalty":NaN}': "'penalty'",
    '--env-args {"rows":3.5}': "'rows'",
    '--env-args {"rows":true}': "'rows'",
    '--env-args {"rows":-5}': "at least 3 rows",
    '--env-args {"self":1}': "'self'",
    '--env-args {"name":1}': "'name'",
    '--env-args {"":1}': "''",
    # how long, and from which seed
    "--steps 0": "steps must",
    "--steps=-1": "steps must",
    "--steps nan": "nan",
    "--steps inf": "inf",
    "--steps 1e400": "1e400",
    "--steps 1e99": "steps must",
    "--steps 3.5": "3.5",
    "--steps x": "x",
    f"--steps {'9' * 46}": "steps must",
    f"--steps {'9' * 5000}": "steps",
    "--seed=-1": "seed must",
    "--seed 4294967296": "seed must",
    "--seed nan": "nan",
    # where, and from which file
    "--config": "--config",
    "--config nothing.json": "cannot be read",
    "--config empty": "cannot be read",
    "--config file": "is not JSON",
    "--config list.yaml": "object of settings",
    "--config deep.json": "nested too deeply",
    "--config binary.json": "cannot be read",
    "--config file --algo qmix": "leave out --algo",
    "--run-dir": "run-dir",
    "--run-dir file": "already exists",
    "--run-dir file/below": "Not a directory",
    "--run-dir /proc/nothing": "cannot be made",
    "--run-dir full": "already exists",
    # words that nobody knows
    "--nothing": "nothing",
    "--nothing 3": "nothing",
    "word": "word",
    "--lr 1": "--learner.learning-rate",
    "--t_max 1": "--steps",
    # pieces from outside
    "--learner.kind nothing": "No learner is called 'nothing'",
    "--learner.kind os:system": "Nothing of it was called",
    "--learner.kind :": "names no learner",
    '--terms {"os:system":{}}': "Nothing of it was called",
    '--terms {"":{}}': "No term is called ''",
    '--terms {":":{}}': "names no term",
    "--terms null": "JSON object",
    '--loggers {"nothing":{}}': "No logger is called 'nothing'",
    '--loggers {"os:system":{}}': "Nothing of it was called",
    "--algo emu_qmix --memory.embedder.kind os:system": "Nothing of it was called",
    "--algo emu_qmix --memory.embedder.kind :": "names no embedder",
}
OTHERS = {
    "nonsense": "No command is called 'nonsense'",
    "--nothing": "No command",
    "resume": "run",
    "resume nothing": "is not a run folder",
    "resume file": "is not a run folder",
    "resume empty": "is not a run folder",
    "resume empty --steps 1e400": "1e400",
    "evaluate": "run",
    "evaluate nothing": "is not a run folder",
    "evaluate empty": "is not a run folder",
    "evaluate empty --episodes 0": "--episodes must",
    "evaluate empty --episodes=-5": "--episodes must",
    "evaluate empty --episodes 1e12": "--episodes must",
    "evaluate empty --episodes x": "x",
    "evaluate empty --seed=-1": "--seed must",
    "evaluate empty --seed 1e30": "--seed must",
    "evaluate empty --which nothing": "--which must",
    "evaluate empty --which nan": "--which must",
    "evaluate empty --which 1e400": "--which must",
    "render nothing": "is not a run folder",
    "render empty --tries 0": "--tries must",
    "render empty --fps 0": "--fps must",
    "render empty --fps nan": "--fps must",
    "render empty --fps inf": "--fps must",
    "render empty --out x.xyz": ".gif",
    "export-team nothing out": "is not a run folder",
    "export-team empty": "Where the team goes",
    "plot": "Name a run's folder",
    "plot nothing": "does not exist",
    "plot file": "No run was found",
    "plot empty": "No run was found",
    "plot empty --kind nothing": "nothing",
    "table": "Name a run's folder",
    "table nothing": "does not exist",
    "table empty": "No run was found",
    "table empty --kind nothing": "nothing",
    "absolute": "Name a run's folder",
    "absolute nothing": "does not exist",
    "absolute empty": "No run was found",
    "export": "folder",
    "export empty": "The .json file",
    "export empty x.json": "No run was found",
    "export nothing x.json": "does not exist",
    "report": "folder",
    "report nothing": "does not exist",
    "report empty": "No run was found",
    "report empty --out x.pdf": ".html",
    "report empty --projection nothing": "nothing",
    "study": "Which study",
    "study nothing": "nothing",
    "study ablation --scale nothing": "nothing",
    "study ablation --seeds x": "is not a list of seeds",
    "study ablation --seeds 5-1": "run backwards",
    "study ablation --seeds 0-99999999 --out s": "more than 10,000 seeds",
    "study ablation --tasks nothing --out s": "nothing",
    "study ablation --out file": "cannot be written",
    "study ablation --workers 3 --cluster nowhere:1 --out s": "--workers is for this machine",
    "sweep": "algos",
    "sweep --algos qmix": "envs",
    "sweep --algos qmix --envs gridworld": "out",
    "sweep --algos qmix --envs gridworld --out file": "cannot be written",
    "sweep --algos qmix --envs gridworld --out file/below": "cannot be written",
    "sweep --algos qmix --envs gridworld --out /proc/nothing": "cannot be written",
    "sweep --algos nothing --envs gridworld --out s": "nothing",
    "sweep --algos qmix --envs nothing --out s": "nothing",
    "sweep --algos qmix --envs : --out s": "names no environment",
    "sweep --algos qmix --envs os:system --out s": "Nothing of it was called",
    "envs nothing": "nothing",
    "algos nothing": "nothing",
    "play": "env",
    "play :": "names no environment",
    "play nothing": "nothing",
    "play gridworld --episodes 0": "--episodes must",
    "play gridworld --episodes=-5": "--episodes must",
    "play gridworld --episodes 1e12": "--episodes must",
    "play gridworld --episodes 1e400": "1e400",
    "play gridworld --policy nothing": "nothing",
    "play gridworld --policy os:system": "os:system",
    "play gridworld --seed=-1": "--seed must",
    "play gridworld --seed 1e30": "--seed must",
    "play gridworld --env-args null": "JSON object",
    'play gridworld --env-args {"width":1}': "no argument 'width'",
    "play gridworld --gif x.xyz": ".gif",
    "play os:system": "Nothing of it was called",
    "check": "module:Name",
    "check :": "names no environment",
    "check os:system": "Nothing of it was called",
    "check gridworld --episodes 0": "--episodes must",
    "check gridworld --env-args null": "JSON object",
    "doctor nothing": "nothing",
    "demo --out file": "cannot be written",
}
SETS = {
    "x": "is not a setting",
    "=3": "is not a setting",
    "learner.gamma=": "is not a setting",
    "learner.gamma=x": "learner.gamma",
    "learner.gamma=NaN": "learner.gamma",
    "learner=3": "learner",
    "learner=[]": "learner",
    "learner.gamma={": "learner.gamma",
    "env_args=null": "JSON object",
    "env_args=3": "JSON object",
    'env_args={"x":1}': "no argument 'x'",
    ".=1": "Unknown configuration key",
    "learner.gamma.x=1": "Unknown configuration key",
    "learner..gamma=1": "Unknown configuration key",
    "nothing=1": "Unknown configuration key",
    "seed=1": "--seeds",
    "learner.gamma=0.9,0.9": "only once",
    "learner.gamma=" + "[" * 100_000: "learner.gamma",
}
SEEDS = {
    "0-9999999999999": "is not a list of seeds",
    "0-99999999": "more than 10,000 seeds",
    "0-10000": "more than 10,000 seeds",
    "4294967296": "seed must",
    "99999999999999999999": "is not a list of seeds",
    "-1": "seeds",
    ",": "is not a list of seeds",
    "1,,2": "is not a list of seeds",
    "3-": "is not a list of seeds",
    "5-3": "run backwards",
    "\u0663": "is not a list of seeds",  # a three, but not ours
}


@pytest.fixture(autouse=True)
def around(tmp_path, monkeypatch):
    """A folder with some files, in which nothing may be trained."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "list.yaml").write_text("- 1\n- 2\n")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    accepting_nothing(monkeypatch)


@pytest.mark.parametrize("words", TRAIN)
def test_a_training_that_cannot_be_is_refused_by_name(words):
    require_refused(command("train", *words.split()), TRAIN[words])


@pytest.mark.parametrize("words", OTHERS)
def test_a_command_that_cannot_be_is_refused_by_name(words):
    require_refused(command(*words.split()), OTHERS[words])


@pytest.mark.parametrize("words", SETS, ids=range(len(SETS)))
def test_a_sweep_over_a_setting_that_cannot_be_is_refused_by_name(words):
    require_refused(command(*SWEEP, "--set", words), SETS[words])


@pytest.mark.parametrize("words", SEEDS)
def test_seeds_that_cannot_be_are_refused_by_name(words):
    require_refused(command(*SWEEP, f"--seeds={words}"), SEEDS[words])


def test_nothing_was_left_by_what_was_refused(tmp_path):
    for words in ("--env os:system", '--env-args {"penalty":null}', "--learner.kind nothing"):
        command("train", *words.split(), "--run-dir", "made")
    assert not (tmp_path / "made").exists()


PLACES = [
    ["train", "--run-dir"],
    ["train", "--config"],
    ["resume"],
    ["evaluate"],
    ["render"],
    ["plot"],
    ["table"],
    ["absolute"],
    ["report"],
    ["export-team"],
    [*SWEEP, "--out"],
    ["study", "ablation", "--out"],
    ["demo", "--out"],
    ["play", "gridworld", "--gif"],
]


@pytest.mark.parametrize("place", PLACES, ids=" ".join)
@pytest.mark.parametrize(("path", "about"), [(LONG, "too long"), (DEEP_PATH, "too long"), (NULL, "null character")])
def test_a_path_that_no_file_system_takes_is_refused(place, path, about):
    require_refused(command(*place, path, *(["out"] if place == ["export-team"] else [])), about)


@pytest.mark.parametrize(
    "place", [p for p in PLACES if p[0] not in ("train", "sweep", "study", "demo", "play")], ids=" ".join
)
@pytest.mark.parametrize(
    "path", [MARKUP, "[red]", "a b", "it's", 'a"b', "…", "\udcff", "-", "$(x)", "日本語", "[a-z]*"]
)
def test_a_path_of_any_characters_is_named_as_it_is(place, path):
    answer = command(*place, path, *(["out"] if place == ["export-team"] else []))
    require_refused(answer, path if path.isprintable() else "")


def test_names_with_markup_are_printed_as_they_are(tmp_path):
    """[/bold] closes nothing here: in a sweep's folder, its title, its command, an environment, an algorithm."""
    require_refused(command("train", "--env", MARKUP), MARKUP)
    require_refused(command("train", "--algo", MARKUP), MARKUP)
    require_refused(command("envs", MARKUP), MARKUP)
    require_refused(command("doctor", MARKUP), MARKUP)
    require_refused(command(MARKUP), MARKUP)
    require_refused(command(*SWEEP[:-1], f"{MARKUP} sweep", "--set", "env_args=" + json.dumps({MARKUP: 1})), MARKUP)
