"""Who plays, by the kind of environment: compiled copies, worker processes, or one object that steps many copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from emu.config import Config
from emu.devices import Devices
from emu.envs.pictures import PicturedEnv
from emu.envs.protocols import Env, PythonEnv, VectorEnv
from emu.envs.scripted import Player, Remembering, scripted_player
from emu.errors import ConfigError, EnvError
from emu.learners.base import Learner
from emu.play.batched import ActingCopies, BatchedEvaluator, BatchedRollout
from emu.play.compiled import CompiledEvaluator, Rollout, play_scripted_copies
from emu.play.episode import Evaluation, Evaluator, InProcessEvaluator, PlayedEpisode, play_one
from emu.play.gif import best_of
from emu.play.worker_groups import Workers
from emu.play.workers import WorkerEvaluator, WorkerRollout
from emu.seeds import recorded_episode, scripted_generator, scripted_keys
from emu.types import PyTree

COPIES_AT_ONCE = 512  # of an environment whose copies live in this process, such as Atari's emulators


def build_players(
    env: Env | PythonEnv, learner: Learner, config: Config, devices: Devices, warn: Callable[[str], None]
) -> tuple[Rollout | WorkerRollout | BatchedRollout, Evaluator]:
    """What collects and what evaluates in a run. Worker processes start when they are first needed."""
    copies, chunk, episodes = config.rollout.envs, config.rollout.chunk, config.eval.episodes
    if isinstance(env, VectorEnv):
        counts = (copies, min(episodes, COPIES_AT_ONCE))
        acting = [ActingCopies(env, learner, count, config.rollout.workers, devices) for count in counts]
        return BatchedRollout(acting[0], chunk, devices), BatchedEvaluator(acting[1], config.eval.epsilon, episodes)
    if config.eval.epsilon:
        raise ConfigError(f"eval.epsilon is for Atari: evaluations in '{env.spec.name}' are greedy. Leave it at 0.")
    if isinstance(env, PythonEnv):
        workers = Workers(env, learner, devices, config.rollout, copies, min(copies, episodes), warn)
        return WorkerRollout(workers, chunk, devices), WorkerEvaluator(workers, episodes)
    return Rollout(env, learner, copies, chunk, devices), CompiledEvaluator(env, learner, episodes, devices)


def evaluate_team(team: Any, episodes: int, seed: int, number: int) -> Evaluation:
    """Greedy episodes of a trained team (`emu.run.team.Team`)."""
    env, learner, config = team.env, team.learner, team.config.rollout
    if isinstance(env, VectorEnv):
        acting = ActingCopies(env, learner, min(episodes, COPIES_AT_ONCE), config.workers, team.devices)
        return BatchedEvaluator(acting, team.config.eval.epsilon, episodes).evaluate(team.policy, seed, number)
    if not isinstance(env, PythonEnv):
        return CompiledEvaluator(env, learner, episodes, team.devices).evaluate(team.policy, seed, number)
    workers = Workers(env, learner, team.devices, config, 0, min(config.envs, episodes))
    try:
        return WorkerEvaluator(workers, episodes).evaluate(team.policy, seed, number)
    finally:
        workers.close()


def recorder(
    env: Env | PythonEnv, learner: Learner, policy: PyTree, states: bool = False, frames: bool = True
) -> Callable[[int], PlayedEpisode]:
    """A function that plays the greedy episode of a seed in this process; it is compiled once."""
    evaluator: CompiledEvaluator | InProcessEvaluator
    if isinstance(env, PythonEnv):
        evaluator = InProcessEvaluator(env, learner)
    else:
        evaluator = CompiledEvaluator(env, learner, 1, Devices.of(1))

    def play(seed: int) -> PlayedEpisode:
        (episode,) = evaluator.play(policy, recorded_episode(seed), states=states, frames=frames)
        return episode

    return play


def best_recorded(env: Env | PythonEnv, learner: Learner, policy: PyTree, tries: int) -> PlayedEpisode:
    """The best of some greedy episodes, with its frames. Where pictures take long, only the chosen one is drawn."""
    record = recorder(env, learner, policy)
    if isinstance(env, PicturedEnv) and env.seedable:
        return best_of(tries, recorder(env, learner, policy, frames=False), record)
    return best_of(tries, record)


def play_scripted(
    env: Env | PythonEnv, policy: str | Player, episodes: int, seed: int = 0, frames: bool = False
) -> list[PlayedEpisode]:
    """Episodes of a scripted player, by its name or as a function (see `emu.envs.scripted`)."""
    player = scripted_player(env, policy) if isinstance(policy, str) else policy
    if isinstance(env, PythonEnv):
        return [_scripted_episode(env, player, scripted_generator(seed, number), frames) for number in range(episodes)]
    return play_scripted_copies(env, player, scripted_keys(seed, episodes), frames)


def _scripted_episode(env: PythonEnv, player: Player, rng: np.random.Generator, frames: bool) -> PlayedEpisode:
    begin = int(rng.integers(2**31))
    if isinstance(player, Remembering):
        raise EnvError(f"A player of '{env.spec.name}', a Python environment, is a function (env, view, generator).")
    return play_one(env, lambda view: player(env, view, rng), begin, frames=frames)
