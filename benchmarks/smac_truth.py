"""How true the SMAC-compatible simulator is: scripted players here beside figures of the real game.

    python benchmarks/smac_truth.py [--maps 2s3z 3s5z] [--policy random heuristic] [--episodes 512] [--off start]

Length, return (mean and standard deviation) and win rate of each player on each map, all battles of a row in one
compiled program. `--off` switches sources of chance off, to see what each of them adds. The real figures:

- random: training windows that end at 10,000 steps (exploration rate 1 to 0.8), means over runs logged in public by
  others (SC2 4.10 and 4.6.2, difficulty 7); 6h_vs_8z: mean of 35 first episodes. So the real player learns a little.
- heuristic: the win rates in the table of the SMAC paper (arXiv 1902.04043).
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from emu import envs
from emu.envs.smac.maps import MAPS
from emu.envs.smac.scripted import PLAYERS
from emu.play.build import play_scripted
from emu.play.episode import summary_of

REAL_RANDOM = {  # map: length, return
    "3m": (26, 1.8),
    "8m": (32, 2.1),
    "2s3z": (52, 4.2),
    "3s5z": (53, 4.7),
    "5m_vs_6m": (26, 1.6),
    "3s_vs_5z": (51, 3.3),
    "MMM2": (39, 1.9),
    "6h_vs_8z": (22.6, 5.12),
}
REAL_HEURISTIC = {
    "2s3z": 90,
    "3s5z": 42,
    "10m_vs_11m": 12,
    "5m_vs_6m": 0,
    "3s_vs_5z": 0,
    "6h_vs_8z": 0,
    "MMM2": 0,
    "corridor": 0,
}  # per cent of battles won
SOURCES = ("spawn", "start", "lookout", "weapons")


def main() -> None:
    args = _arguments()
    options: dict[str, Any] = {f"random_{source}": 0.0 if source == "spawn" else False for source in args.off}
    print(f"{'map':16} {'player':14} {'length':>13} {'return':>13} {'wins':>6}   real")
    rows = []
    for name in args.maps:
        for policy in args.policy:
            played = play_scripted(envs.make(f"smac/{name}", **options), policy, args.episodes, args.seed)
            row = {"map": name, "policy": policy, **summary_of(played)}
            rows.append(row)
            print(_line(row), flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"off": args.off, "seed": args.seed, "rows": rows}, file, indent=1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Scripted players here beside figures of the real game.")
    parser.add_argument("--maps", nargs="+", default=list(MAPS), choices=list(MAPS), metavar="MAP")
    parser.add_argument("--policy", nargs="+", default=["random", "heuristic"], choices=["random", *PLAYERS])
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--off", nargs="+", default=[], choices=SOURCES, help="sources of chance to switch off")
    parser.add_argument("--json", default=None)
    return parser.parse_args()


def _line(row: dict) -> str:
    length = f"{row['length_mean']:.1f} ± {row['length_std']:.1f}"
    value = f"{row['return_mean']:.2f} ± {row['return_std']:.2f}"
    wins = f"{100 * row['win_rate']:.1f} %"
    return f"{row['map']:16} {row['policy']:14} {length:>13} {value:>13} {wins:>6}   {_real(row)}"


def _real(row: dict) -> str:
    """What the real game gave, and the ratio of ours to it."""
    if row["policy"] == "random" and row["map"] in REAL_RANDOM:
        length, value = REAL_RANDOM[row["map"]]
        ours = row["length_mean"] / length, row["return_mean"] / value
        return f"{length} (ratio {ours[0]:.2f}), {value} (ratio {ours[1]:.2f})"
    if row["policy"] == "heuristic" and row["map"] in REAL_HEURISTIC:
        return f"wins {REAL_HEURISTIC[row['map']]} %"
    return ""


if __name__ == "__main__":
    main()
