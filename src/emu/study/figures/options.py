"""What a figure may be told; each kind uses what concerns it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from emu.study.analysis.scores import Measure

Band = Literal["auto", "ci", "std", "seeds"]


class Options(NamedTuple):
    metric: str = ""  # of curves, ablation, parameter; "": the win rate where a task has a goal, else the return
    measure: Measure = "overall"  # of profile, improvement
    parameter: str = ""  # of parameter; "": the one number that the runs differ in
    band: Band = "auto"  # around a mean of five seeds or more: its 95 % interval (auto, ci), one standard deviation
    smooth: int = 1  # every value is the mean of so many, the last ones up to it
    training: bool = False  # of curves, ablation, parameter: the training episodes beside the greedy evaluations
    mix_versions: bool = False
    title: str = ""
