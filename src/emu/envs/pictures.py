"""Pictures of environments that draw themselves: Gymnasium's and PettingZoo's `rgb_array`.

Such an environment must know from its making that it will be drawn, and what it draws with (OpenGL, pygame) may take
its process along. So it is made once more, in a process of its own, and played there; the seeds are the same.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from PIL import Image

from emu.envs.protocols import Drawable, PythonEnv
from emu.envs.spec import View
from emu.envs.workers.guarded import GRACE
from emu.envs.workers.pool import task_of
from emu.envs.workers.process import ProcessHandle
from emu.errors import EnvError
from emu.types import Outcome

TIMEOUT = 120.0  # seconds for one answer
LONGEST_SIDE = 480  # pixels: an episode's pictures are held in memory until all are there
MOST_FPS = 50.0  # what a GIF can show
NO_DISPLAY = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "MUJOCO_GL": "egl"}
HINT = "Where it draws with OpenGL and there is no display, try MUJOCO_GL=osmesa (MuJoCo) or xvfb-run (others)."


@runtime_checkable
class Rendered(Protocol):
    """What an adapter offers whose environments may draw themselves when made with `render_mode="rgb_array"`."""

    def render_modes(self) -> list[str]: ...

    def render_fps(self) -> float: ...

    def picture(self) -> np.ndarray: ...


class RendersItself:
    """`Rendered` for adapters that hold a Gymnasium or PettingZoo environment as `env`."""

    env: Any

    def render_modes(self) -> list[str]:
        return list(self._metadata().get("render_modes") or ())

    def render_fps(self) -> float:
        return min(float(self._metadata().get("render_fps") or 5), MOST_FPS)

    def picture(self) -> np.ndarray:
        """The present moment, (height, width, 3) uint8."""
        shown = self.env.render()
        if not isinstance(shown, np.ndarray) or shown.ndim != 3 or shown.shape[-1] < 3:
            raise EnvError(f"its `render()` gave {type(shown).__name__} instead of a picture (height, width, 3)")
        image = Image.fromarray(np.ascontiguousarray(shown[..., :3], np.uint8))
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        return np.asarray(image)

    def _metadata(self) -> dict[str, Any]:
        return getattr(self.env, "metadata", None) or {}


class PicturedEnv(PythonEnv):
    """An environment in a process of its own, which is drawn there: `snapshot` brings the picture."""

    def __init__(self, env: PythonEnv, fps: float) -> None:
        self.spec, self.seedable, self.fps = env.spec, env.seedable, fps
        task = task_of(env, 1)
        task["recipe"] = task["recipe"]._replace(named={**task["recipe"].named, "render_mode": "rgb_array"})
        settings = {} if os.environ.get("DISPLAY") else NO_DISPLAY
        self._process = ProcessHandle(task, None, TIMEOUT, "emu.envs.workers.picture_child", settings)

    def reset(self, seed: int) -> View:
        return View(*self._ask("reset", seed))

    def step(self, action: np.ndarray) -> tuple[View, Outcome]:
        view, outcome = self._ask("step", np.asarray(action))
        return View(*view), Outcome(*outcome)

    def snapshot(self) -> np.ndarray:
        return self._ask("picture")

    def draw(self, state: np.ndarray) -> np.ndarray:
        return state

    def close(self) -> None:
        self._process.ask_to_close()
        self._process.wait(GRACE)
        self._process.kill()

    def _ask(self, method: str, *arguments: Any) -> Any:
        self._process.send(pickle.dumps((method, arguments)))
        problem, answer = self._process.reply()
        if problem is not None:
            raise EnvError(f"'{self.spec.name}' could not be drawn: {problem.splitlines()[-1]} {HINT}")
        return pickle.loads(answer)


@contextlib.contextmanager
def pictured(env: Any) -> Iterator[Any]:
    """An environment of which pictures can be made: itself if it can be drawn, else a copy that draws itself."""
    if isinstance(env, Drawable) or not (isinstance(env, Rendered) and isinstance(env, PythonEnv)):
        yield env
        return
    if "rgb_array" not in env.render_modes():
        offered = ", ".join(env.render_modes()) or "none"
        raise EnvError(
            f"'{env.spec.name}' cannot be drawn: it has no render mode 'rgb_array' (it has: {offered}), and a picture "
            "without a window needs that."
        )
    copy = PicturedEnv(env, env.render_fps())
    try:
        yield copy
    finally:
        copy.close()
