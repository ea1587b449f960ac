"""Headless Chromium, driven by its DevTools protocol over a pipe.

Nothing is installed for it but the browser itself (apt-get install chromium).
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 30  # seconds for an answer


def find() -> str | None:
    """The browser: $CHROMIUM, or one of its usual names."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser of its own.

    events: everything that it told: errors, messages of its console, requests.
    """

    def __init__(self, executable: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (to_read, self._to), (self._from, to_write) = os.pipe(), os.pipe()
        command = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            [
                *("sh", "-c", command, "sh", executable, "--headless=new", "--no-sandbox"),
                *("--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"),
                *("--no-first-run", f"--user-data-dir={self._folder.name}", "about:blank"),
            ],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest, self._session = 0, b"", ""
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command of the protocol.

        Raises:
            RuntimeError: it was refused, or did not come in time.
        """
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            answer = self._next(deadline)
            if answer is None:
                break
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)
        raise RuntimeError(f"no answer to {method}")

    def _next(self, deadline: float) -> dict[str, Any] | None:
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(deadline - time.monotonic(), 0))[0]:
                return None
            data = os.read(self._from, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self._rest += data
        first, _, self._rest = self._rest.partition(b"\0")
        return json.loads(first)

    def open(self, page: Path) -> None:
        """Load a page."""
        self.call("Page.navigate", url=page.as_uri())
        self.wait(lambda: self.js("document.readyState") == "complete")

    def wait(self, until: Callable[[], Any]) -> None:
        """Return when `until` says so.

        Raises:
            RuntimeError: it does not.
        """
        deadline = time.monotonic() + _PATIENCE
        while not until():
            if time.monotonic() > deadline:
                raise RuntimeError("the page did not come to what was waited for")
            time.sleep(0.02)

    def js(self, expression: str) -> Any:
        """The value of an expression in the page.

        Raises:
            RuntimeError: it throws.
        """
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"])
        return told["result"].get("value")

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Move ("mouseMoved"), press ("mousePressed") or release ("mouseReleased") the button."""
        button = "none" if kind == "mouseMoved" else "left"
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def click(self, x: float, y: float) -> None:
        """Click at a place in the window."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def look(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        """Set the window's size, and the scheme of colours that the user wants."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, file: Path) -> None:
        """What the window shows, as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
