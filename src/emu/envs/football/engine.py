"""The football engine behind three calls: open, reset, step. Everything that knows gfootball's insides is here.

gfootball's own environment copies every observation several times for every agent; its core, used here directly, does
not. The core draws the seed of an episode from Python's generator and keeps one choice of the first episode
(`reverse_team_processing`) for ever: both are set here, so that an episode depends on its seed alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from pathlib import Path
from typing import Any

from emu.errors import EnvError

LEVELS = Path(__file__).parent / "levels"


def require() -> None:
    """Say what to do where gfootball is not installed."""
    for module in ("gfootball", "gfootball_engine"):
        if importlib.util.find_spec(module) is None:
            raise EnvError(
                f"Google Research Football is not installed (no module '{module}'). "
                "`make football` builds it from source, in 5 to 10 minutes the first time."
            )


def _import() -> tuple[Any, Any, Any]:
    """gfootball's scenarios, configuration and core, without the farewell that the gym package prints."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            from gfootball import scenarios  # pyright: ignore[reportMissingImports]
            from gfootball.env import config, football_env_core  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise EnvError(f"gfootball is installed but cannot be imported: {error}. Run `make football`.") from error
    return scenarios, config, football_env_core


class Engine:
    def __init__(self, scenario: str, agents: int) -> None:
        require()
        scenarios, config, core = _import()
        if str(LEVELS) not in scenarios.__path__:
            scenarios.__path__.append(str(LEVELS))
        self._config = config.Config({"level": f"emu_{scenario}", "players": [f"agent:left_players={agents}"]})
        self._core = core.FootballEnvCore(self._config)

    def reset(self, seed: int) -> dict[str, Any]:
        """Begin an episode; the engine's observation of it."""
        self._config["game_engine_random_seed"] = seed
        self._config["reverse_team_processing"] = bool(seed % 2)
        self._core.reset()
        return self._core.observation()

    def step(self, action: list[int]) -> tuple[dict[str, Any], bool]:
        """The engine's observation, and whether it has ended the episode."""
        raw, _, over, *_ = self._core.step(action)
        return raw, over

    def close(self) -> None:
        self._core.close()
