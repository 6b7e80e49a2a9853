"""Who plays: compiled copies of a JAX environment, worker processes for a Python one, or one that steps many copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emu.config import Config
from emu.devices import Devices
from emu.envs.protocols import Env, PythonEnv, VectorEnv
from emu.errors import ConfigError
from emu.learners.base import Learner
from emu.play.batched import Player, VectorEvaluator, VectorRollout
from emu.play.compiled import Rollout
from emu.play.evaluate import Evaluator
from emu.play.workers import Host, HostEvaluator, HostRollout


def build_players(
    env: Env | PythonEnv, learner: Learner, config: Config, devices: Devices, warn: Callable[[str], None]
) -> tuple[Rollout | HostRollout | VectorRollout, Evaluator | HostEvaluator | VectorEvaluator]:
    """What collects and what tests in a run. Worker processes start when they are first needed."""
    copies, tests = config.rollout.envs, config.eval.episodes
    if isinstance(env, VectorEnv):
        players = [Player(env, learner, count, config.rollout.workers, devices) for count in (copies, tests)]
        evaluator = VectorEvaluator(players[1], config.eval.epsilon)
        return VectorRollout(players[0], config.rollout.chunk, devices), evaluator
    if config.eval.epsilon:
        raise ConfigError(f"eval.epsilon is for Atari: tests in '{env.spec.name}' are greedy. Leave it at 0.")
    if isinstance(env, PythonEnv):
        host = Host(env, learner, devices, config.rollout, copies, min(copies, tests), warn)
        return HostRollout(host, config.rollout.chunk, devices), HostEvaluator(host, tests)
    return Rollout(env, learner, copies, config.rollout.chunk, devices), Evaluator(env, learner, tests, devices)


def evaluate_team(team: Any, episodes: int, seed: int, number: int) -> Any:
    """Greedy episodes of a trained team (`emu.run.team.Team`)."""
    if not isinstance(team.env, PythonEnv):
        return Evaluator(team.env, team.learner, episodes, team.devices).test(team.policy, seed, number)
    rollout = team.config.rollout
    if isinstance(team.env, VectorEnv):
        player = Player(team.env, team.learner, episodes, rollout.workers, team.devices)
        return VectorEvaluator(player, team.config.eval.epsilon).test(team.policy, seed, number)
    host = Host(team.env, team.learner, team.devices, rollout, 0, min(rollout.envs, episodes))
    try:
        return HostEvaluator(host, episodes).test(team.policy, seed, number)
    finally:
        host.close()
