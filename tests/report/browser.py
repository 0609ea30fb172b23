"""A real browser for tests: headless Chromium, spoken to over a pipe by the DevTools protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = next((name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None)
_SECONDS = 30.0
# The browser reads from file descriptor 3 and writes to 4; the given ones may be 3 or 4 themselves.
_START = """
import os, sys
read, write = (os.dup(int(number)) for number in sys.argv[1:3])
read, write = (os.dup(number) if number < 5 else number for number in (read, write))
os.dup2(read, 3), os.dup2(write, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One browser with one page at a time; everything that the page says, asks for or throws is kept.

    Attributes:
        complaints: Console messages of warnings and errors, exceptions and log entries, since the last `open`.
        requests: The addresses that were asked for since the last `open`.
    """

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars")
        quiet = ("--no-first-run", "--disable-extensions", "--disable-component-update")
        profile = f"--user-data-dir={self._profile.name}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(read), str(write), CHROMIUM, *flags, *quiet, profile, "about:blank"],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._numbers, self._buffer, self._session = itertools.count(1), b"", None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        try:
            self._session = None
            self.send("Browser.close")
            self._process.wait(5)
        except (OSError, TimeoutError, RuntimeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and wait for its answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _SECONDS
        while True:
            answer = self._receive(until)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, given: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled" and given["type"] in ("warning", "error", "assert"):
            self.complaints.append(" ".join(str(part.get("value", part)) for part in given["args"]))
        elif method == "Runtime.exceptionThrown":
            detail = given["exceptionDetails"]
            self.complaints.append(detail.get("exception", {}).get("description", detail["text"]))
        elif method == "Log.entryAdded":
            self.complaints.append(given["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(
        self,
        path: Path,
        *,
        size: tuple[int, int] = (1280, 900),
        phone: bool = False,
        media: str = "",
        scripts: bool = True,
    ) -> None:
        """Open a file in a window of a size, and wait until it has loaded."""
        self.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.media(media)
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.send("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.complaints, self.requests, self._loaded = [], [], False
        self.send("Page.navigate", url=path.resolve().as_uri())
        until = time.monotonic() + _SECONDS
        while not self._loaded:
            self._receive(until)
        if scripts:
            self.settle()

    def media(self, kind: str) -> None:
        """Emulate ``"dark"``, ``"print"``, or neither."""
        scheme = "dark" if "dark" in kind else "light"
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", media="print" if "print" in kind else "", features=features)

    def settle(self) -> None:
        """Let the page draw twice."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, script: str) -> Any:
        """Evaluate a script in the page, and return its value."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "failed"))
        return answer["result"].get("value")

    def key(self, name: str, *, times: int = 1) -> None:
        """Press a key."""
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Tab": 9, "Escape": 27}
        text = "\r" if name == "Enter" else name if len(name) == 1 else ""
        for _ in range(times):
            press = {"key": name, "code": name, "windowsVirtualKeyCode": codes.get(name, ord(name[0]))}
            self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **press)
            self.send("Input.dispatchKeyEvent", type="keyUp", **press)
        self.settle()

    def point(self, x: float, y: float, *, click: bool = False) -> None:
        """Move the mouse to a place of the window, and click there."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def tap(self, x: float, y: float) -> None:
        """Tap with a finger."""
        self.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()
        time.sleep(0.1)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what the window shows, or the whole page, as a PNG."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def print_pdf(self, path: Path) -> None:
        """Write what a printer would print."""
        path.write_bytes(base64.b64decode(self.send("Page.printToPDF", printBackground=False)["data"]))
