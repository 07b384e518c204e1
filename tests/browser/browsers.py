"""A real browser, without a window, for tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE, NARROW = (1280, 800), (400, 800)


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; skips the tests where one of them is missing."""
    driver = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is missing: pip install -e '.[browser]'"
    )
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium or Chrome is installed: apt-get install chromium")
    # Root, as in containers, has no sandbox.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with driver.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(
    started: Any, path: Path, size: tuple[int, int] = WIDE, *, dark: bool = False
) -> Iterator[Any]:
    """A page in the browser, which must report nothing and ask for nothing.

    Raises:
        AssertionError: it wrote to the console, failed, or asked the network.
    """
    said: list[str] = []
    page = started.new_page(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))
    page.goto(path.as_uri())
    assert said == [path.as_uri()]
    yield page
    assert said == [path.as_uri()]
    page.close()
