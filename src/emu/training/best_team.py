"""The best team of a finished run as a GIF, for the loggers that can show one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.envs.protocols import Drawable, Env, PythonEnv
from emu.errors import EmuError
from emu.play.build import best_recorded
from emu.play.gif import save_gif
from emu.run.best import load_best
from emu.run.folder import RunFolder
from emu.run.loggers import Logger

if TYPE_CHECKING:
    from emu.training.loop import Trainer

TRIES = 4  # episodes of which one is shown


def can_be_drawn(env: Env | PythonEnv) -> bool:
    """Whether pictures can be made of episodes; a Python environment must also show its present moment."""
    return isinstance(env, Drawable) and (not isinstance(env, PythonEnv) or hasattr(env, "snapshot"))


def log_best_team(trainer: Trainer) -> None:
    """Draw a greedy episode into the run's folder and hand it to the loggers. Nothing of the run depends on it."""
    takers = [logger for logger in trainer.loggers if type(logger).gif is not Logger.gif]
    env = trainer.env
    if not takers or not can_be_drawn(env):
        return
    try:
        policy, best = load_best(trainer.folder, trainer.policy)
        episode = best_recorded(env, trainer.learner, policy, TRIES)
        path = save_gif(env, episode.frames or [], RunFolder(trainer.folder).gif)
        for logger in takers:
            logger.gif(int(best["step"]), path)
    except (EmuError, OSError) as error:
        trainer.progress.warn(f"The best team could not be drawn: {error}")
