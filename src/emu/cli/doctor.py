"""`emu doctor`: what is installed; `emu doctor smac`: whether the real StarCraft Multi-Agent Challenge can be played.

The game is looked for where PySC2 looks for it. Nothing is started but one Python process that imports the package.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import emu
from emu.errors import EmuError, did_you_mean

EXTRAS = {
    "gpu": "jax_cuda12_plugin",
    "cluster": "ray",
    "pettingzoo": "mpe2",
    "gymnasium": "gymnasium",
    "atari": "ale_py",
    "jaxmarl": "jaxmarl",
    "mujoco": "mujoco",
    "lbf": "lbforaging",
    "rware": "rware",
    "study": "openTSNE",
    "onnx": "onnx",
    "wandb": "wandb",
    "trackio": "trackio",
    "bench": "pykdtree",
    "dev": "pytest",
}
IMPORT_SECONDS = 120.0


class Finding(NamedTuple):
    """One thing that was looked for."""

    name: str
    text: str  # what was found, or what is wrong and what to do
    fine: bool = True


def doctor(subject: Annotated[str, tyro.conf.Positional] = "") -> int:
    """Say what is installed, what JAX sees, and which extras are missing.

    `emu doctor smac` says what real StarCraft II lacks.

    Args:
        subject: Nothing for the package itself; smac for the real StarCraft Multi-Agent Challenge.
    """
    if not subject:
        _print(installation())
        return 0
    if subject not in SUBJECTS:
        raise EmuError(f"`emu doctor` knows nothing of '{subject}'. {did_you_mean(subject, SUBJECTS)}")
    findings = SUBJECTS[subject]()
    _print(findings)
    return 0 if all(finding.fine for finding in findings) else 1


def _print(findings: list[Finding]) -> None:
    table = Table(box=None, show_header=False)
    for finding in findings:
        text = escape(finding.text)
        table.add_row(finding.name, text if finding.fine else f"[bold red]{text}[/]")
    Console(emoji=False).print(table)


def installation() -> list[Finding]:
    """Versions, devices, extras. A missing extra is no fault."""
    from emu.devices import Devices, configure_cpu_devices, cpu_count
    from emu.run.provenance import PACKAGES, git_commit

    configure_cpu_devices()
    devices = Devices.of().devices
    findings = [
        Finding("emu-marl", f"{emu.__version__} (commit {git_commit() or 'none'})"),
        Finding("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *(Finding(name, importlib.metadata.version(name)) for name in PACKAGES),
        Finding("devices", f"{len(devices)} x {devices[0].platform} ({cpu_count()} CPU cores)"),
    ]
    for extra, module in EXTRAS.items():
        there = importlib.util.find_spec(module) is not None
        text = "installed" if there else f"missing: pip install 'emu-marl[{extra}]'"
        findings.append(Finding(f"extra '{extra}'", text))
    football = importlib.util.find_spec("gfootball_engine") is not None
    return [*findings, Finding("football", "installed" if football else "missing: make football")]


# Real SMAC

# Where the game is if SC2PATH does not say, and its program below Versions/BaseNNNNN.
PLACES = {
    "Linux": ("~/StarCraftII", "SC2_x64"),
    "Darwin": ("/Applications/StarCraft II", "SC2.app/Contents/MacOS/SC2"),
    "Windows": ("C:/Program Files (x86)/StarCraft II", "SC2_x64.exe"),
}
OLDEST_BUILD = 55958  # 3.16.1, the first with the interface that PySC2 uses
RELEASES = {69232: "4.6.2, as in SMAC's paper", 75689: "4.10, as in most later work"}
DOWNLOADS = "https://github.com/Blizzard/s2client-proto#downloads"
MAP_ARCHIVE = "https://github.com/oxwhirl/smac/releases/download/v0.1-beta1/SMAC_Maps.zip"
TRIAL = 'emu check pymarl:smac.env:StarCraft2Env --env-args \'{"map_name": "3m"}\''
PACKAGE = "pip install git+https://github.com/oxwhirl/smac.git"


def smac(environ: Mapping[str, str] = os.environ, system: str | None = None) -> list[Finding]:
    """The game, its version, SMAC's maps, and the Python package."""
    place, program = PLACES.get(system or platform.system(), PLACES["Linux"])
    folder = Path(environ.get("SC2PATH") or place).expanduser()
    said = "SC2PATH" if environ.get("SC2PATH") else "the usual place; SC2PATH names another"
    findings = [_package()]
    if not folder.is_dir():
        advice = f"no folder {folder} ({said}). Download the game from {DOWNLOADS} and unpack it there."
        return [*findings, Finding("StarCraft II", advice, False)]
    findings += [Finding("StarCraft II", f"{folder} ({said})"), _program(folder, program), _maps(folder)]
    if all(finding.fine for finding in findings):
        findings.append(Finding("try it", TRIAL))
    return findings


def _program(folder: Path, program: str) -> Finding:
    """The newest build is the one that PySC2 starts."""
    names = [path.name.removeprefix("Base") for path in (folder / "Versions").glob("Base*")]
    builds = sorted(int(name) for name in names if name.isdigit())
    if not builds:
        return Finding("version", f"no Versions/Base… in {folder}: unpack the game from {DOWNLOADS} again.", False)
    newest = builds[-1]
    path = folder / "Versions" / f"Base{newest:05d}" / program
    if not path.is_file():
        return Finding("version", f"no program {path}: unpack the game from {DOWNLOADS} again.", False)
    if not os.access(path, os.X_OK):
        return Finding("version", f"{path} may not be executed: chmod +x '{path}'", False)
    if newest < OLDEST_BUILD:
        advice = f"build {newest} is too old: PySC2 needs 3.16.1 (build {OLDEST_BUILD}). Newer ones: {DOWNLOADS}"
        return Finding("version", advice, False)
    release = RELEASES.get(newest, "not one that published results use: win rates are not always comparable")
    return Finding("version", f"build {newest} ({release})")


def _maps(folder: Path) -> Finding:
    from emu.envs.smac.maps import MAPS

    home = folder / "Maps" / "SMAC_Maps"
    found = {path.stem for path in home.glob("*.SC2Map")}
    if not found:
        stray = next(folder.glob("**/3m.SC2Map"), None)
        advice = f"move {stray.parent} to {home}." if stray else f"unpack {MAP_ARCHIVE} into {home.parent}."
        return Finding("maps", f"no maps in {home}: {advice}", False)
    missing = sorted(set(MAPS) - found)
    return Finding("maps", f"{len(found)} in {home}" + (f"; not there: {', '.join(missing)}" if missing else ""))


def _package() -> Finding:
    name = "package smac"
    spec = importlib.machinery.PathFinder.find_spec("smac")  # found, not imported
    if spec is None:
        return Finding(name, f"not installed: {PACKAGE}", False)
    folders = [Path(folder) for folder in spec.submodule_search_locations or []]
    if not any((folder / "env").is_dir() for folder in folders):
        advice = "this is another project of that name (an optimiser; it is what PyPI calls smac)"
        return Finding(name, f"{advice}: pip uninstall smac, then {PACKAGE}", False)
    problem = _import_problem("from smac.env import StarCraft2Env")
    if problem:
        return Finding(name, f"cannot be imported: {problem}. {_import_advice(problem)}", False)
    return Finding(name, _version("smac"))


def _import_problem(statement: str) -> str:
    """The last line of what a fresh Python says to an import; nothing if it works."""
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", statement]
    try:
        done = subprocess.run(command, env=around, capture_output=True, text=True, timeout=IMPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it takes longer than {IMPORT_SECONDS:g} seconds"
    return (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else ""


def _import_advice(problem: str) -> str:
    if "No module named" in problem:
        return f"Install what is missing; {PACKAGE} brings what SMAC needs."
    if "escriptors" in problem or "protobuf" in problem:
        advice = "Its protocol files are older than the installed protobuf"
        return f"{advice}: set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python."
    return f"Install it again: {PACKAGE}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "version unknown"


SUBJECTS: dict[str, Callable[[], list[Finding]]] = {"smac": smac}
