"""A real browser without a screen: Debian's chromium-headless-shell, spoken to over its own debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = "chromium-headless-shell"
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars")


class Page:
    """One tab. `events` are all messages that were no answer: console lines, exceptions, requests."""

    def __init__(self, to: Any, back: Any) -> None:
        self._to, self._back, self._n, self._session = to, back, 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._n += 1
        message = {"id": self._n, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while True:
            told = self._next()
            if told.get("id") == self._n:
                assert "error" not in told, told
                return dict(told["result"])
            self.events.append(told)

    def close(self) -> None:
        """Ends the browser; returns when its last process has let go of the pipe."""
        self._session = ""
        self.ask("Browser.close")
        while self._back.read(4096):
            pass

    def _next(self) -> dict[str, Any]:
        line = bytearray()  # a picture is a line of a megabyte
        while not line.endswith(b"\0"):
            byte = self._back.read(1)
            assert byte, "the browser is gone"
            line += byte
        return dict(json.loads(line[:-1]))

    def open(self, path: Path, width: int, *, dark: bool = False, scripts: bool = True) -> None:
        """Loads a local page at a width, and waits until it says that it is loaded."""
        self.events.clear()
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.ask("Page.navigate", url=path.resolve().as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def complaints(self) -> list[str]:
        """Console lines, exceptions and log entries of the page."""
        bad = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.events if e.get("method") in bad]

    def requested(self) -> list[str]:
        wanted = (e for e in self.events if e.get("method") == "Network.requestWillBeSent")
        return [str(e["params"]["request"]["url"]) for e in wanted]

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        made = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(made["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    """The browser with one tab; it ends with the block. Its profile is a folder that is thrown away."""
    program = shutil.which(PROGRAM)
    assert program, f"{PROGRAM} is missing: tests/system-packages.sh installs it"
    to_read, to = os.pipe()
    back, back_write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="anvil-browser-") as profile:
        # The browser reads commands from descriptor 3 and answers on 4.
        shell = f'exec "$@" 3<&{to_read} 4>&{back_write}'
        argv = [
            "bash",
            "-c",
            shell,
            "browser",
            program,
            *_FLAGS,
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        process = subprocess.Popen(
            argv, pass_fds=(to_read, back_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_read)
        os.close(back_write)
        try:
            with os.fdopen(to, "wb") as commands, os.fdopen(back, "rb") as answers:
                page = Page(commands, answers)
                yield page
                page.close()
            process.wait(10)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
