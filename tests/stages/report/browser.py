"""Debian's chromium without a screen, driven by its DevTools protocol: pages are opened, asked and photographed.

One process serves any number of pages. Whatever the page asks of the network, and every error that it reports, is kept.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import websocket

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
HOW_TO_ENABLE = "needs a browser: apt-get install chromium"
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-dev-shm-usage", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-port=0"),
    *("--disable-extensions", "--mute-audio", "--force-color-profile=srgb", "--remote-allow-origins=*"),
)
_START_S, _PAGE_S = 60.0, 60.0


def browser_program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@dataclass(eq=False)
class Page:
    """A page that has been opened, at a size and in a theme."""

    line: websocket.WebSocket
    problems: list[str] = field(default_factory=list)  # console errors, exceptions, failed loads
    requests: list[str] = field(default_factory=list)  # addresses beyond the file itself
    _number: int = 0
    _loaded: bool = False

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; what happens meanwhile is noted."""
        self._number += 1
        self.line.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.line.recv())
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def resize(self, width: int, height: int = 900, *, dark: bool = False, scale: float = 1.0) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])

    def open(self, file: Path) -> float:
        """Load it and wait until every chart is drawn; seconds from the call to that moment."""
        begin = time.monotonic()
        self.call("Page.navigate", url=file.resolve().as_uri())
        self.wait_drawn()
        return time.monotonic() - begin

    def wait_drawn(self) -> None:
        limit = time.monotonic() + _PAGE_S
        while self.ask("document.readyState === 'complete' && document.documentElement.dataset.drawn") in (None, False):
            assert time.monotonic() < limit, f"the page is not drawn after {_PAGE_S:g} s: {self.problems}"
            time.sleep(0.05)

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        clip: dict[str, Any] = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)
        path.write_bytes(base64.b64decode(taken["data"]))
        return path

    def printed(self) -> bytes:
        """The page as a PDF on A4."""
        taken = self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        return base64.b64decode(taken["data"])

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(parameters["exceptionDetails"].get("exception", parameters)))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.problems.append(" ".join(str(each.get("value", each)) for each in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            address = parameters["request"]["url"]
            if not address.startswith(("data:", "blob:")) and parameters["type"] != "Document":
                self.requests.append(address)


@contextmanager
def open_page() -> Iterator[Page]:
    """A browser with one page; both are gone afterwards."""
    program = browser_program()
    assert program is not None, HOW_TO_ENABLE
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={home}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            line = websocket.create_connection(_address(Path(home)), timeout=_PAGE_S)
            page = Page(line)
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.call(f"{domain}.enable")
            yield page
            line.close()
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(home: Path) -> str:
    """Of the page's socket; the browser writes its port when it is ready."""
    limit = time.monotonic() + _START_S
    while time.monotonic() < limit:
        try:
            port = (home / "DevToolsActivePort").read_text().split()[0]
            with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=5) as reply:
                pages = [each for each in json.load(reply) if each["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        except (OSError, IndexError, ValueError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"the browser is not ready after {_START_S:g} s")
