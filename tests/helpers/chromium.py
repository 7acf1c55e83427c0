"""Pages in headless Chromium, driven through the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["CHROMIUM", "Page"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""The program; None if there is none."""

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # containers lack what it needs
    "--no-zygote",  # whose children's time would not count as this process's
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--remote-debugging-pipe",
)
_SECONDS = 120.0  # until an answer


class Page:
    """A page of a browser of its own. Use it in a `with` statement."""

    def __init__(self, width: int = 800, height: int = 600) -> None:
        """Start a browser with an empty page."""
        self._folder = tempfile.TemporaryDirectory(prefix="nnefc-chromium-", ignore_cleanup_errors=True)
        command_read, self._commands = os.pipe()
        self._answers, answer_write = os.pipe()
        flags = [*_FLAGS, f"--user-data-dir={self._folder.name}", f"--window-size={width},{height}", "about:blank"]
        # the browser reads from descriptor 3 and writes to 4
        script = f'exec "$0" "$@" 3<&{command_read} 4>&{answer_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, CHROMIUM or "chromium", *flags],
            pass_fds=(command_read, answer_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        self._numbers = itertools.count(1)
        self._unread = b""
        self._session = ""
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.command("Page.enable")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._commands)  # whereupon it ends
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        self._folder.cleanup()

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The browser's answer to a command."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _SECONDS
        while True:
            answer = self._read(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(self._answers, 1 << 16) if ready else b""
            if not more:
                raise RuntimeError("the browser has ended, or does not answer")
            self._unread += more
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, address: str) -> None:
        """Go to a page."""
        self.command("Page.navigate", url=address)

    def value(self, expression: str) -> Any:
        """What an expression, or its promise, becomes in the page."""
        answer = self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Its value, when that is true."""
        deadline = time.monotonic() + _SECONDS
        while not (value := self.value(expression)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"never true: {expression}")
            time.sleep(0.05)
        return value

    def drag(self, points: list[tuple[float, float]]) -> None:
        """Press the mouse's button at the first point, move over the others, and let it go."""
        for i, (x, y) in enumerate(points):
            kind = "mouseMoved" if i else "mousePressed"
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
        x, y = points[-1]
        self.command("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, button="left", clickCount=1)

    def choose_file(self, selector: str, path: Path) -> None:
        """Give an input of the page a file."""
        root = self.command("DOM.getDocument")["root"]["nodeId"]
        node = self.command("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.command("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def image(self) -> bytes:
        """What the page looks like, as PNG."""
        return base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"])
