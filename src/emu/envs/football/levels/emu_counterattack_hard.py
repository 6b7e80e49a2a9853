"""`football/counterattack_hard` under the name by which gfootball imports it."""

from emu.envs.football.scenarios import SCENARIOS

build_scenario = SCENARIOS["counterattack_hard"].build
