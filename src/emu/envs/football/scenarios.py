"""The three tasks: who stands where, as data. Positions are the engine's, each team's from its own side of the pitch.

The pitch is 2 long and 0.84 wide, its centre at the origin; our goal is at x = -1, the opponents' at x = 1. The
scenarios are gfootball's academy ones; the counter-attacks without the players who start far behind, as published.
Our keeper is not controllable: otherwise the engine would hand agents over to it, and an agent would not keep its
player.
"""

from __future__ import annotations

import dataclasses
from typing import Any

Place = tuple[float, float, str]  # x, y, role


@dataclasses.dataclass(frozen=True)
class Scenario:
    ball: tuple[float, float]
    agents: tuple[Place, ...]
    opponents: tuple[Place, ...]  # without their keeper

    @property
    def n_agents(self) -> int:
        return len(self.agents)

    @property
    def n_opponents(self) -> int:
        return 1 + len(self.opponents)

    @property
    def feature_dim(self) -> int:
        """Of the state and of each observation: a place and a direction for everyone, in three dimensions the ball."""
        return 4 * (self.n_agents + self.n_opponents) + 6

    def build(self, builder: Any) -> None:
        """What gfootball calls to set the players up."""
        from gfootball_engine import e_PlayerRole, e_Team  # type: ignore[attr-defined]

        config = builder.config()
        config.game_duration = 400
        config.deterministic = False  # the engine's chance depends on its seed
        config.offsides = False
        config.end_episode_on_score = True
        config.end_episode_on_out_of_play = True
        config.end_episode_on_possession_change = True
        builder.SetBallPosition(*self.ball)
        for team, places in ((e_Team.e_Left, self.agents), (e_Team.e_Right, self.opponents)):
            builder.SetTeam(team)
            builder.AddPlayer(-1.0, 0.0, e_PlayerRole.e_PlayerRole_GK, controllable=team != e_Team.e_Left)
            for x, y, role in places:
                builder.AddPlayer(x, y, getattr(e_PlayerRole, f"e_PlayerRole_{role}"))


_FOUR_IN_FRONT = ((0.5, -0.3161, "CM"), (0.25, -0.1, "LM"), (0.25, 0.1, "RM"), (0.35, 0.316102, "CF"))

SCENARIOS = {
    "3_vs_1_with_keeper": Scenario(
        ball=(0.62, 0.0),
        agents=((0.6, 0.0, "CM"), (0.7, 0.2, "CM"), (0.7, -0.2, "CM")),
        opponents=((-0.75, 0.0, "CB"),),
    ),
    "counterattack_easy": Scenario(ball=(0.26, -0.11), agents=_FOUR_IN_FRONT, opponents=((-0.4, 0.063559, "CB"),)),
    "counterattack_hard": Scenario(
        ball=(0.26, -0.11),
        agents=_FOUR_IN_FRONT,
        opponents=((-0.4, -0.06356, "CB"), (-0.4, 0.063559, "CB")),
    ),
}
