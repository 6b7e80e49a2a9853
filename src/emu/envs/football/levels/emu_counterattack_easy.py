"""`football/counterattack_easy` under the name by which gfootball imports it."""

from emu.envs.football.scenarios import SCENARIOS

build_scenario = SCENARIOS["counterattack_easy"].build
