"""The SMAC-compatible simulator. Registering its maps imports nothing heavy; making one does."""

from __future__ import annotations

from emu.envs.registry import register

BATTLES = {
    "1c3s5z": "1 colossus, 3 stalkers, 5 zealots against the same",
    "3s5z": "3 stalkers, 5 zealots against the same",
    "3s_vs_5z": "3 stalkers against 5 zealots",
    "5m_vs_6m": "5 marines against 6",
    "MMM2": "2 marauders, 7 marines, 1 medivac against 3, 8 and 1",
    "6h_vs_8z": "6 hydralisks against 8 zealots",
    "3s5z_vs_3s6z": "3 stalkers, 5 zealots against 3 and 6",
    "corridor": "6 zealots against 24 zerglings at a choke",
    "3m": "3 marines against 3",
    "8m": "8 marines against 8",
    "25m": "25 marines against 25",
    "10m_vs_11m": "10 marines against 11",
    "27m_vs_30m": "27 marines against 30",
    "2s3z": "2 stalkers, 3 zealots against the same",
    "MMM": "2 marauders, 7 marines, 1 medivac against the same",
    "2c_vs_64zg": "2 colossi on a cliff against 64 zerglings",
    "bane_vs_bane": "20 zerglings, 4 banelings against the same",
    "so_many_baneling": "7 zealots against 32 banelings",
    "2s_vs_1sc": "2 stalkers against 1 spine crawler",
    "8m_vs_9m": "8 marines against 9",
    "3s_vs_3z": "3 stalkers against 3 zealots",
    "3s_vs_4z": "3 stalkers against 4 zealots",
    "2m_vs_1z": "2 marines against 1 zealot",
}


def register_all() -> None:
    """Make every map available as `smac/<name>`."""
    for name, sides in BATTLES.items():
        register(f"smac/{name}", "emu.envs.smac.env:make", sides, map=name)
