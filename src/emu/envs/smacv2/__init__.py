"""SMACv2 in the SMAC-compatible simulator: teams and places drawn at every reset. Registering imports nothing heavy."""

from __future__ import annotations

from emu.envs.registry import register

RACE_NAMES = ("terran", "protoss", "zerg")
SIZES = ((5, 5), (10, 10), (20, 20), (10, 11), (20, 23))
SCENARIO_NAMES = tuple(f"{race}_{n}_vs_{m}" for race in RACE_NAMES for n, m in SIZES)


def register_all() -> None:
    """Make every scenario available as `smacv2/<name>`, and `smacv2/custom` for a configuration of one's own."""
    for name in SCENARIO_NAMES:
        race, allies, _, enemies = name.split("_")
        summary = f"{race} teams, {allies} against {enemies}"
        register(f"smacv2/{name}", "emu.envs.smacv2.env:make", summary, scenario=name)
    summary = "battles from your own capability_config"
    register("smacv2/custom", "emu.envs.smacv2.env:make", summary, scenario="custom")
