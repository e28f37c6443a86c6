"""A headless Chromium, driven over its debugging pipe: enough to open a page, run JavaScript in it and take a picture.

Messages are JSON texts ended by a zero byte, on file descriptors 3 (to the browser) and 4 (from it):
https://chromedevtools.github.io/devtools-protocol/ ("--remote-debugging-pipe").
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "about:blank",
]


def executable() -> str | None:
    """Chromium under one of its names, None if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for path in map(shutil.which, names) if path), None)


class Page:
    """One tab.  errors: what the console and the page complained about; requests: every address it asked for."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._write, self._read, self._buffer = to_browser, from_browser, b""
        self._number = 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.renew()

    def renew(self) -> None:
        """A fresh tab, at the start and after a crash."""
        self._session, self.crashed = "", False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Inspector"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(30)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def open(self, address: str) -> None:
        """Load a page from scratch and wait until it has drawn its tables."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")
        self.wait(
            "!document.querySelector('#shown') || document.querySelector('#shown').textContent !== '' "
            "|| document.querySelector('[role=alert]:not([hidden]), #absent-here:not([hidden])')"
        )

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", str(answer)))
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 20) -> None:
        """Until a JavaScript condition is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition} is still false; the page complains: {self.errors}")
            time.sleep(0.02)

    def size(self, width: int, height: int, scheme: str = "light", media: str = "") -> None:
        """Size of the window, colour scheme, and medium ("print")."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    def mouse(self, kind: str, x: float, y: float, button: str = "none") -> None:
        """mouseMoved, mousePressed or mouseReleased."""
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button=button,
            clickCount=0 if kind == "mouseMoved" else 1,
            buttons=1 if button == "left" and kind != "mouseReleased" else 0,
        )

    def key(self, name: str) -> None:
        """Press and release a key."""
        extra = {"text": "\r"} if name == "Enter" else {"text": name} if len(name) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=name, **extra)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)

    def picture(self, path: Path | str, whole: bool = False) -> None:
        """Save a PNG of the window, or of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def _receive(self, seconds: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], seconds)[0]:
                raise TimeoutError("Chromium does not answer")
            chunk = os.read(self._read, 1 << 16)
            if not chunk:
                raise RuntimeError("Chromium has ended")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Inspector.targetCrashed":
            self.crashed = True
            raise RuntimeError("the tab has crashed; if the kernel log (dmesg) names Chromium, memory ran out")
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.errors.append(str([a.get("value") for a in parameters["args"]]))


@contextlib.contextmanager
def browser(program: str) -> Iterator[Page]:
    """A fresh browser with a fresh profile; it is gone afterwards."""
    to_browser, from_browser = os.pipe(), os.pipe()

    def place_pipes() -> None:
        reading, writing = os.dup(to_browser[0]), os.dup(from_browser[1])  # 3 and 4 may be among the originals
        os.dup2(reading, 3)
        os.dup2(writing, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, f"--user-data-dir={profile}", *FLAGS],
            preexec_fn=place_pipes,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Page(to_browser[1], from_browser[0])
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(to_browser[1])
            os.close(from_browser[0])
