"""A headless browser that tells what a page did: its errors, what it asked for, how it looks.

Chromium is spoken to by its DevTools protocol, through two pipes: JSON messages, each ended
by a zero byte (--remote-debugging-pipe)."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no chromium here to look at the page with")

_PATIENCE = 120.0
"""Seconds to wait for an answer; a busy machine is slow."""


class Page:
    """A page that is open.

    requests: addresses asked for, but for that of the page; errors: what the console says"""

    def __init__(self, write: int, read: int) -> None:
        self._write = write
        self._read = read
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self._address = ""
        self._loaded = False
        self.requests: list[str] = []
        self.errors: list[str] = []

    def open(self, file: Path, width: int, height: int) -> None:
        """Load a file, and wait until it is there."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Log", "Runtime", "Page"):
            self.ask(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self._address = file.resolve().as_uri()
        self.ask("Page.navigate", url=self._address)
        while not self._loaded:
            self._take()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON has it."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """A PNG of all of the page."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def ask(self, method: str, **parameters: Any) -> Any:
        """The answer to a call of the protocol."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._take()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _take(self) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            came = os.read(self._read, 1 << 20)
            assert came, "the browser has ended"
            self._buffer += came
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, about: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent" and about["request"]["url"] != self._address:
            self.requests.append(about["request"]["url"])
        elif event == "Log.entryAdded":
            self.errors.append(about["entry"]["text"])
        elif event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.errors.append(json.dumps(about))
        elif event == "Page.loadEventFired":
            self._loaded = True


@contextmanager
def look_at(file: Path, profile: Path, *, width: int = 1200, height: int = 900) -> Iterator[Page]:
    """Open a file in a browser with a profile of its own, in a directory that need not be there."""
    assert PROGRAM is not None
    # Chromium reads from its descriptor 3 and writes to 4.
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    options = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
        *("--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"),
    )
    command = [PROGRAM, *options, f"--user-data-dir={profile}"]
    wrapped = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command]
    with (profile.parent / f"{profile.name}.log").open("wb") as log:
        browser = subprocess.Popen(
            wrapped, pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    os.close(to_browser)
    os.close(from_browser)
    try:
        page = Page(write, read)
        page.open(file, width, height)
        yield page
    finally:
        os.close(write)
        browser.terminate()
        try:
            browser.wait(20)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()
        os.close(read)


class Outside(HTMLParser):
    """What a page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.names: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                self.references.append(value or "")
            elif name == "id":
                self.names.append(value or "")


def assert_nothing_is_outside(text: str) -> None:
    """A page is a file of its own, and what it refers to is there."""
    found = Outside(text)
    assert not found.tags & {"script", "iframe", "object", "embed", "img"}
    assert all(reference.startswith("#") or reference == "data:," for reference in found.references)
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    assert len(found.names) == len(set(found.names)), "two elements of one name"
    assert {reference[1:] for reference in found.references if reference[:1] == "#"} <= set(found.names)
