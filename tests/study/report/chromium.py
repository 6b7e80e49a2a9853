"""A headless Chromium driven through its DevTools pipe: no driver, no extra package, no port.

Messages are JSON ended by a zero byte; Chromium reads them from file descriptor 3 and answers on 4.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60.0  # seconds for one answer; a busy machine is slow, not broken


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. `complaints` holds errors and warnings of its console, `requests` every address it asked for."""

    def __init__(self, program: str) -> None:
        self._home = tempfile.mkdtemp(prefix="chromium-")
        there, self._out = os.pipe()
        self._in, back = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (there, back)]
        actions = [(os.POSIX_SPAWN_DUP2, high[0], 3), (os.POSIX_SPAWN_DUP2, high[1], 4)]
        actions += [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        words = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        words += ["--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio", f"--user-data-dir={self._home}"]
        self._process = os.posix_spawn(program, [program, *words], os.environ, file_actions=actions, setsid=True)
        for fd in (there, back, *high):
            os.close(fd)
        self._number, self._left = 0, b""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session: str = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.killpg(self._process, signal.SIGKILL)  # a group of our own: it holds Chromium's helpers and nobody else
        os.waitpid(self._process, 0)
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._home, ignore_errors=True)

    # What a person does

    def open(self, page: Path) -> None:
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.until("document.readyState === 'complete'")

    def resize(self, width: int, height: int, phone: bool = False) -> None:
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.frame()

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.frame()

    def click(self, x: float, y: float) -> None:
        place = {"x": x, "y": y, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **place)
        self.frame()

    def tap(self, x: float, y: float) -> None:
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.frame()

    def press(self, selector: str) -> None:
        """Click the middle of an element, wherever it is."""
        self.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        self.frame()
        box = self.run(f"(() => {{ const b = document.querySelector({selector!r}).getBoundingClientRect();"
                       " return [b.x + b.width / 2, b.y + b.height / 2] })()")  # fmt: skip
        self.click(*box)

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.frame()

    def wheel(self, x: float, y: float, amount: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=amount)
        self.frame()

    def set(self, selector: str, value: Any) -> None:
        """Give an input a value as its user would: it hears `input` and `change`."""
        self.run(f"(() => {{ const e = document.querySelector({selector!r}); e.value = {json.dumps(value)};"
                 " e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change')) })()")  # fmt: skip
        self.frame()

    def screenshot(self, path: Path, whole: bool = False) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    # What a program does

    def run(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def frame(self) -> None:
        """Let the page draw what it was told."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def until(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.run(condition):
            if time.monotonic() > end:
                raise AssertionError(f"never became true: {condition}")
            time.sleep(0.05)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, parameters, self._session)

    def _call(self, method: str, parameters: dict[str, Any], session: str = "") -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            if not select.select([self._in], [], [], PATIENCE)[0]:
                raise AssertionError("Chromium does not answer")
            block = os.read(self._in, 1 << 20)
            if not block:
                raise AssertionError("Chromium ended")
            self._left += block
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        kind, what = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(what["exceptionDetails"]))
        elif kind == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(what["args"]))
        elif kind == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(what["entry"]["text"])
        elif kind == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
