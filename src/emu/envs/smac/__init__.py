"""The SMAC-compatible simulator. Registering its maps imports nothing heavy; making one does."""

from __future__ import annotations

from emu.envs.base import register

MAP_NAMES = (
    "1c3s5z", "3s5z", "3s_vs_5z", "5m_vs_6m", "MMM2", "6h_vs_8z", "3s5z_vs_3s6z", "corridor",
    "3m", "8m", "25m", "10m_vs_11m", "27m_vs_30m", "2s3z", "MMM", "2c_vs_64zg", "bane_vs_bane", "so_many_baneling",
    "2s_vs_1sc", "8m_vs_9m", "3s_vs_3z", "3s_vs_4z", "2m_vs_1z",
)  # fmt: skip


def register_all() -> None:
    """Make every map available as `smac/<name>`."""
    for name in MAP_NAMES:
        register(f"smac/{name}", "emu.envs.smac.env:make", f"SMAC-compatible battle {name}", map=name)
