"""`emu doctor smac` on folders made up for the purpose: each thing missing is named, with what to do about it."""

import os
import sys
from pathlib import Path

import pytest

from emu.cli.app import main
from emu.cli.doctor import smac
from emu.envs.smac.maps import MAPS

ENV = "class StarCraft2Env: pass\n"


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def game(tmp_path, monkeypatch):
    """A game, its maps and the package, all sound and all false."""
    home = tmp_path / "StarCraftII"
    for build in (55958, 69232):
        write(home / "Versions" / f"Base{build}" / "SC2_x64").chmod(0o755)
    for name in MAPS:
        write(home / "Maps" / "SMAC_Maps" / f"{name}.SC2Map")
    write(tmp_path / "site" / "smac" / "__init__.py")
    write(tmp_path / "site" / "smac" / "env" / "__init__.py", ENV)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return home


def complaints(home):
    return [finding.text for finding in smac({"SC2PATH": str(home)}, "Linux") if not finding.fine]


def test_nothing_is_wrong_with_a_whole_installation(game):
    findings = {finding.name: finding.text for finding in smac({"SC2PATH": str(game)}, "Linux")}
    assert complaints(game) == []
    assert findings["version"] == "build 69232 (4.6.2, as in SMAC's paper)"  # the newer of the two
    assert findings["maps"].startswith(f"{len(MAPS)} in ")
    assert findings["try it"].startswith("emu check pymarl:smac.env:StarCraft2Env")


def test_the_command_says_so_by_its_exit_status(game, monkeypatch, capsys):
    monkeypatch.setenv("SC2PATH", str(game))
    assert main(["doctor", "smac"]) == 0
    monkeypatch.setenv("SC2PATH", str(game / "elsewhere"))
    assert main(["doctor", "smac"]) == 1
    assert "Download the game from" in " ".join(capsys.readouterr().out.split())
    assert main(["doctor", "smack"]) == 2
    assert "Did you mean 'smac'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("system", "inside"),
    [("Linux", "StarCraftII"), ("Darwin", "/Applications/StarCraft II"), ("Windows", "C:/Program Files (x86)")],
)
def test_without_sc2path_the_usual_place_is_named(system, inside):
    texts = [finding.text for finding in smac({}, system) if finding.name == "StarCraft II"]
    assert inside in texts[0] and "SC2PATH names another" in texts[0]


def test_a_program_that_is_not_there_or_too_old_or_not_executable(game):
    program = game / "Versions" / "Base69232" / "SC2_x64"
    program.chmod(0o644)
    if os.getuid() or not os.access(program, os.X_OK):
        assert complaints(game) == [f"{program} may not be executed: chmod +x '{program}'"]
    program.unlink()
    assert complaints(game)[0].startswith(f"no program {program}")
    program.parent.rmdir()
    (game / "Versions" / "Base55958").rename(game / "Versions" / "Base52910")
    assert "build 52910 is too old" in complaints(game)[0]
    (game / "Versions").rename(game / "versions-of-old")
    assert "no Versions/Base" in complaints(game)[0]


def test_another_build_is_fine_but_said_to_be_another(game):
    write(game / "Versions" / "Base93333" / "SC2_x64").chmod(0o755)
    assert complaints(game) == []
    texts = [finding.text for finding in smac({"SC2PATH": str(game)}, "Linux") if finding.name == "version"]
    assert texts[0].startswith("build 93333 (not one that published results use")


def test_maps_that_are_missing_or_in_the_wrong_place(game):
    maps = game / "Maps" / "SMAC_Maps"
    (maps / "MMM2.SC2Map").unlink()
    assert complaints(game) == []
    assert any(finding.text.endswith("; not there: MMM2") for finding in smac({"SC2PATH": str(game)}, "Linux"))
    maps.rename(game / "Maps" / "Unpacked")
    assert complaints(game) == [f"no maps in {maps}: move {game / 'Maps' / 'Unpacked'} to {maps}."]
    for path in (game / "Maps" / "Unpacked").iterdir():
        path.unlink()
    assert "SMAC_Maps.zip into" in complaints(game)[0]


def test_a_package_that_is_missing_another_or_broken(game, monkeypatch):
    package = Path(sys.path[0]) / "smac"
    write(package / "env" / "__init__.py", "import no_such_thing_as_pysc2\n")
    (broken,) = complaints(game)
    assert "No module named 'no_such_thing_as_pysc2'" in broken and "brings what SMAC needs" in broken
    write(package / "env" / "__init__.py", "raise TypeError('Descriptors cannot be created directly.')\n")
    assert "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python" in complaints(game)[0]
    (package / "env").rename(package / "optimiser")
    assert "another project of that name" in complaints(game)[0]
    package.rename(package.parent / "other")
    assert "not installed: pip install git+https://github.com/oxwhirl/smac.git" in complaints(game)[0]
