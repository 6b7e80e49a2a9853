"""How things are written in tables, legends and reports: algorithms by the names people know, short numbers."""

from __future__ import annotations

from collections.abc import Iterable

ALGORITHMS = {
    "vdn": "VDN",
    "qmix": "QMIX",
    "qplex": "QPLEX",
    "iql": "IQL",
    "ippo": "IPPO",
    "mappo": "MAPPO",
    "td3": "TD3",
    "dqn": "DQN",
    "emc": "EMC",
    "cds": "CDS",
    "qplex_e3b": "QPLEX + E3B",
    "emu_vdn": "EMU (VDN)",
    "emu_qmix": "EMU (QMIX)",
    "emu_qplex": "EMU (QPLEX)",
    "emu_cds": "EMU (CDS)",
    "emu_td3": "EMU (TD3)",
    "emu_dqn": "EMU (DQN)",
    "no_ei": "EMU (QPLEX) without EI",
    "no_se": "EMU (QPLEX) without SE",
    "no_ei_no_se": "EMU (QPLEX) without EI and SE",
    "cds_no_ei": "EMU (CDS) without EI",
    "cds_no_se": "EMU (CDS) without SE",
}
EMBEDDERS = {"random": "random projection", "embnet": "EmbNet", "dcae": "dCAE"}


def readable(label: str) -> str:
    """A label with its first word as people write it: `emu_qplex+fast δ=0.1` becomes `EMU (QPLEX) + fast δ=0.1`."""
    word, space, rest = label.partition(" ")
    name, *variants = word.split("+")
    if name not in ALGORITHMS:
        return f"{EMBEDDERS.get(word, word)}{space}{rest}"
    return f"{' + '.join([ALGORITHMS[name], *variants])}{space}{rest}"


def seeds_text(counts: Iterable[int]) -> str:
    """`5 seeds`, `1 seed`, or `2–3 seeds` where tasks have different numbers of them."""
    fewest, most = min(counts := sorted(counts)), max(counts)
    if fewest != most:
        return f"{fewest}–{most} seeds"
    return f"{most} seed{'' if most == 1 else 's'}"


def short_steps(steps: float) -> str:
    """A number of steps as people say it: 500, 20K, 1.37M."""
    if steps >= 1e6:
        return f"{steps / 1e6:.3g}M"
    return f"{steps / 1e3:.3g}K" if steps >= 1e3 else f"{steps:.0f}"


def short_number(value: float) -> str:
    """A setting as the paper writes it: 1.3e-2, 0.01, 10."""
    digits, exponent = f"{value:.3e}".split("e")
    if value and (int(exponent) < -3 or (int(exponent) < -1 and float(digits) % 1)):
        return f"{float(digits):g}e{int(exponent)}"
    return f"{value:g}"
