"""The commands about an environment alone: `emu check`, `emu play`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from emu.bounds import require_playable
from emu.cli.output import AsJson, print_values, require_at_least_one, say, say_aside
from emu.config.build import JsonObject
from emu.errors import EmuError


def check(
    env: Annotated[str, tyro.conf.Positional],
    env_args: JsonObject | None = None,
    episodes: int = 8,
    timeout: float = 120.0,
    minutes: float = 10.0,
    gigabytes: float | None = None,
) -> int:
    """Play random episodes and explain what breaks an environment's contract.

    The environment runs in a process of its own, with limits.

    Args:
        env: A registered name, or module:Name.
        env_args: Arguments of the environment, as JSON.
        episodes: How many episodes.
        timeout: Seconds that one call of the environment may take.
        minutes: Minutes that all of it may take.
        gigabytes: Memory that it may take; by default three quarters of what is free.
    """
    from emu.envs.check_process import Limits, check_in_process, raise_verdict

    require_at_least_one("--episodes", episodes)
    for option, value in (("--timeout", timeout), ("--minutes", minutes), ("--gigabytes", gigabytes)):
        if value is not None and not value > 0:
            raise EmuError(f"{option} must be greater than 0, not {value:g}.")
    limits = Limits(timeout, minutes * 60, gigabytes and gigabytes * 1e9)
    verdict = check_in_process(env, env_args or {}, episodes, limits)
    raise_verdict(verdict)
    say(f"'{env}' keeps its contract ({episodes} random episodes).")
    for note in verdict.notes:
        say_aside(note)
    return 0


def play(
    env: Annotated[str, tyro.conf.Positional],
    policy: str = "random",
    episodes: int = 256,
    seed: int = 0,
    env_args: JsonObject | None = None,
    gif: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Let a scripted player play: length, return, win rate.

    Means and standard deviations; in battles also who is left.

    Args:
        env: Any environment, e.g. smac/3s5z, football/3_vs_1_with_keeper or gymnasium:Pendulum-v1.
        policy: random; on the simulator's maps also nearest, weakest, kite, heuristic or heuristic_rest.
        episodes: How many episodes.
        seed: Seed of the episodes.
        env_args: Arguments of the environment, as JSON.
        gif: Also record one episode into this file.
        as_json: Print JSON.
    """
    from emu import envs
    from emu.envs.pictures import pictured
    from emu.play.build import play_scripted
    from emu.play.episode import summary_of
    from emu.play.gif import require_gif, save_gif

    require_playable(episodes, seed, dashes="--")
    if gif is not None:
        require_gif(gif)
    game = envs.make(env, **(env_args or {}))
    values = summary_of(play_scripted(game, policy, episodes, seed))
    if not game.spec.has_goal:
        del values["win_rate"]
    print_values(values, as_json, f"{policy} on {env}")
    if gif is not None:
        with pictured(game) as shown:
            (episode,) = play_scripted(shown, policy, 1, seed, frames=True)
            say_aside(str(save_gif(shown, episode.frames or [], gif)))
    return 0
