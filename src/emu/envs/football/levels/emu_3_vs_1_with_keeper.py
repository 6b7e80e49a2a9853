"""`football/3_vs_1_with_keeper` under the name by which gfootball imports it."""

from emu.envs.football.scenarios import SCENARIOS

build_scenario = SCENARIOS["3_vs_1_with_keeper"].build
