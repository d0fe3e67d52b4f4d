"""How long a browser takes until a page can be used."""

from __future__ import annotations

import shutil
from typing import Final

from playwright.sync_api import Browser, sync_playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
USABLE: Final = """() => new Promise((resolve) => {
  const [page] = performance.getEntriesByType("navigation");
  new PerformanceObserver((seen) => {
    const painted = Math.max(...seen.getEntries().map((paint) => paint.startTime));
    resolve(Math.max(page.domContentLoadedEventEnd, painted) / 1000);
  }).observe({ type: "paint", buffered: true });
})"""
"""The page is painted and its scripts have run, so every control works."""


def seconds_to_use(address: str, rounds: int) -> list[float]:
    """Each with a fresh browser profile, so that nothing was fetched before; none without Chromium."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        return []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        times = [_seconds(browser, address) for _ in range(rounds + 1)]
        browser.close()
    return times[1:]


def _seconds(browser: Browser, address: str) -> float:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address, wait_until="load")
    seconds = float(page.evaluate(USABLE))
    context.close()
    return seconds
