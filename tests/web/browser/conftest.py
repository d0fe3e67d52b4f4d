"""A real browser and a real server. Where there is no Chromium these tests are skipped, except in CI."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.support.served import Served

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playwright.sync_api import ConsoleMessage, Request

REQUIRED = os.environ.get("CI") or os.environ.get("TRAX_REQUIRE_BROWSER") == "1"
NAMES = ("chromium", "chromium-browser", "google-chrome")
VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.blockedURI} ${event.violatedDirective}`);
});
"""
TIMEOUT_MILLISECONDS = 20_000


@pytest.fixture(scope="module")
def chromium() -> Generator[Browser]:
    """One browser for a module: while it is open, no other event loop can run in this thread."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        message = "there is no Chromium to look at the dashboard with: apt-get install chromium"
        pytest.fail(message) if REQUIRED else pytest.skip(message)
    expect.set_options(timeout=TIMEOUT_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def served_url(tmp_path: Path) -> str:
    """What a page makes of its answers depends on no database: the answers are tested on both."""
    return f"sqlite:///{tmp_path}/trax.db"


@pytest.fixture
def served(served_url: str) -> Generator[Served]:
    with Served(served_url) as server:
        yield server


@dataclass
class Watch:
    """Everything a page said, asked for or was refused, that it should not have."""

    address: str
    allowed: set[str] = field(default_factory=set[str])
    complaints: list[str] = field(default_factory=list[str])

    def over(self, page: Page) -> None:
        page.add_init_script(VIOLATIONS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        is_allowed = any(word in message.text for word in self.allowed)
        if message.type in {"error", "warning"} and not is_allowed:
            self.complaints.append(message.text)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.address, "data:")):
            self.complaints.append(f"asked for {request.url}")


@pytest.fixture
def watch(served: Served) -> Watch:
    return Watch(served.address)


@pytest.fixture
def page(chromium: Browser, served: Served, watch: Watch) -> Generator[Page]:
    context = chromium.new_context(base_url=served.address, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MILLISECONDS)
    watch.over(page)
    yield page
    violations: list[Any] = page.evaluate("window.violations || []")
    context.close()
    assert (watch.complaints, violations) == ([], [])
