"""SMACv2's arguments that change the interface and the reward, with the values of its published configurations.

The defaults of SMACv2's Python class differ in two: `use_unit_ranges` and `obs_own_pos` are off there (`pymarl.py`).
"""

from __future__ import annotations

import dataclasses

from emu.errors import EnvError


@dataclasses.dataclass(frozen=True)
class Options:
    """All are SMACv2's own names but for the last six."""

    obs_all_health: bool = True
    obs_own_health: bool = True
    obs_last_action: bool = False
    obs_timestep_number: bool = False
    obs_own_pos: bool = True
    obs_starcraft: bool = True  # False: agents see the time step only
    state_last_action: bool = True
    state_timestep_number: bool = False
    fully_observable: bool = False  # agents see all living units, however far away
    use_unit_ranges: bool = True  # sight and reach by type; False: 9 and 6 for all
    min_attack_range: float = 2.0
    prob_obs_enemy: float = 1.0  # that others than the first to see an enemy see it too
    action_mask: bool = True  # False: attacks are available at any distance, and do nothing out of reach
    conic_fov: bool = False
    num_fov_actions: int = 12
    reward_sparse: bool = False
    reward_only_positive: bool = True
    reward_death_value: float = 10.0
    reward_win: float = 200.0
    reward_defeat: float = 0.0
    reward_negative_scale: float = 0.5
    reward_scale: bool = True
    reward_scale_rate: float = 20.0
    scale_by_own_team: bool = False  # scale by the enemies of the episode, not by their mean: a win is worth 20
    enemy_row_bug: bool = False  # blank rows of enemies as the package does since June 2023
    random_spawn: float = 0.1  # cells; sources of chance in the simulator, see `emu.envs.smac.chance`
    random_lookout: bool = True
    random_weapons: bool = True
    timeout_truncates: bool = False  # report the time limit as truncated; SMACv2 ends the episode there

    def __post_init__(self) -> None:
        if self.obs_all_health and not self.obs_own_health:
            object.__setattr__(self, "obs_own_health", True)  # as SMACv2 does
        if not self.obs_starcraft and not self.obs_timestep_number:
            raise EnvError("obs_starcraft=False leaves nothing to see; it needs obs_timestep_number=True.")
        if not 0 <= self.prob_obs_enemy <= 1:
            raise EnvError(f"prob_obs_enemy is a probability, not {self.prob_obs_enemy}.")
        if self.conic_fov and self.num_fov_actions < 1:
            raise EnvError("conic_fov needs num_fov_actions of at least 1.")

    @property
    def tags(self) -> bool:
        """Whether it matters who saw an enemy first."""
        return self.prob_obs_enemy < 1 or self.enemy_row_bug

    @property
    def directions(self) -> int:
        return self.num_fov_actions if self.conic_fov else 0
