"""Google Research Football. Registering its tasks imports nothing heavy; the engine is loaded by the first episode."""

from __future__ import annotations

from emu.envs.football.scenarios import SCENARIOS
from emu.envs.registry import register

SUMMARIES = {
    "3_vs_1_with_keeper": "three attackers, a defender and a keeper",
    "counterattack_easy": "four attackers, a defender and a keeper",
    "counterattack_hard": "four attackers, two defenders and a keeper",
}


def register_all() -> None:
    """Make every scenario available as `football/<name>`."""
    for name in SCENARIOS:
        summary = f"Google Research Football: {SUMMARIES[name]} (make football)"
        register(f"football/{name}", "emu.envs.football.env:FootballEnv", summary, scenario=name)
