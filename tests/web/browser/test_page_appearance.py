"""Every page as it looks: light and dark, wide and narrow, for eyes, for ears and for the keyboard.

With TRAX_PICTURES=1 the pictures of docs/how-to/use-the-dashboard.md are made anew.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect
from sqlalchemy import func, select, update
from tests.support.roastery import Roastery
from tests.support.waiting import until

from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from tests.support.served import Served
    from tests.web.browser.conftest import Watch

    from trax.store import Connection

PROJECT = Path(__file__).parent.parent.parent.parent
STUMBLES = (PROJECT / "tests" / "support" / "accessible.js").read_text(encoding="utf-8")
PICTURES = PROJECT / "docs" / "pictures"
BILL = {"customer": {"name": "Ada"}, "lines": [{"sku": "sidamo"}]}
PICTURED = bool(os.environ.get("TRAX_PICTURES"))
THEMES: Final = ("light", "dark")
USUAL_SECONDS = {"import_orders": 4.2, "close_day": 0.35, "daily_report": 1.8, "roast_batch": 11.5}
PAGES = {
    "/": "home",
    "/trains": "",
    "/trains/charge_card": "train",
    "/groups": "",
    "/groups/orders": "",
    "/manifests": "",
    "/manifests/roast-morning": "manifest",
    "/queue": "",
    "/queue/{entry}": "",
    "/executions": "",
    "/executions/{run}": "execution",
    "/dead-letters": "dead-letters",
    "/dead-letters/1": "",
    "/workers": "",
    "/logs": "",
    "/audit": "",
    "/settings": "",
    "/login": "",
    "/nowhere": "",
}


@pytest.fixture
def served_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/trax.db"
    if PICTURED:
        with ThreadPoolExecutor(1) as elsewhere:  # in this thread the browser has its own event loop
            elsewhere.submit(asyncio.run, a_week(url)).result()
    return url


async def a_week(url: str) -> None:
    """Something to draw: seven days that have passed already, the last hour of them busy."""
    now = datetime.now(UTC)
    async with Harness(Roastery(url).app(), now=now - timedelta(days=7)) as harness:
        for number in range(56 + 28):
            await harness.advance(minutes=167 * 60 / 56 if number < 56 else 2)
            await harness.app.queue("roast_batch", {"beans": "Sidamo"})
            if number % 6 == 0:
                await harness.app.queue(
                    "charge_card", {**BILL, "customer": {"name": "Ada" * (number % 3 + 1)}}
                )
            await harness.run_until_idle()
        (await harness.app.context.store.open()).run(take_their_time)


def take_their_time(connection: Connection) -> None:
    """Under a clock that stands still every run is over at once; in a picture they take as long as usual."""
    run = tables(connection).metadata
    chance = Random(4711)  # noqa: S311 - the same in every picture
    for row in connection.execute(select(run.c.id, run.c.train, run.c.started_at)).all():
        seconds = USUAL_SECONDS.get(row.train, 0.08) * chance.lognormvariate(0, 0.3)
        ended = {"ended_at": row.started_at + timedelta(seconds=seconds)}
        connection.execute(update(run).where(run.c.id == row.id, run.c.ended_at.is_not(None)).values(ended))


def hide_this_machine(connection: Connection) -> None:
    """A stack tells where the code lies: in a picture, where it would lie on a server."""
    run = tables(connection).metadata
    for path, instead in (
        (f"{PROJECT}/tests/support/roastery.py", "/srv/roastery/jobs.py"),
        (PROJECT, "/srv"),
    ):
        stack = func.replace(run.c.stack_trace, str(path), str(instead))
        connection.execute(update(run).values(stack_trace=stack))


def busy(served: Served) -> dict[str, int]:
    """Something of everything: failures, a run under way, an entry that waits, an edit in the audit."""
    for name in ("Ada", "Bob", "Cy"):
        served.do(served.app.queue("charge_card", {**BILL, "customer": {"name": name}}))
    served.do(served.app.queue("roast_batch", {"beans": "patience"}, group="roastery"))
    entry = served.do(served.app.queue("roast_batch", {"beans": "patience"}, group="roastery"))
    until(lambda: len(served.do(served.app.dead_letters.list())) >= 3)
    until(lambda: len(served.do(served.app.executions.list(manifest="report-day", state="completed"))) > 0)
    until(lambda: len(served.do(served.app.executions.list(state="in_progress"))) == 1)
    (run,) = served.do(served.app.executions.list(state="failed", limit=1))
    if PICTURED:
        served.do(served.app.context.store.open()).run(hide_this_machine)
    return {"entry": entry.id, "run": run.id}


def test_no_page_has_a_problem_of_accessibility(page: Page, served: Served, watch: Watch) -> None:
    ids = busy(served)
    watch.allowed.add("404 (Not Found)")
    page.set_viewport_size({"width": 1280, "height": 860})
    found: dict[str, list[str]] = {}

    for path, picture in PAGES.items():
        page.goto(path.format(**ids))
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            keep_picture(page, picture, theme)
            found[f"{path}, {theme}"] = page.evaluate(STUMBLES)
        found[path] = [*page.evaluate("window.violations"), *narrow(page)]

    assert {path: stumbles for path, stumbles in found.items() if stumbles} == {}


def narrow(page: Page) -> list[str]:
    """On a phone nothing but a table may be wider than the screen, and that scrolls by itself."""
    page.set_viewport_size({"width": 390, "height": 844})
    wider: int = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    page.set_viewport_size({"width": 1280, "height": 860})
    return [f"it is {wider} pixels wider than a phone"] if wider > 0 else []


def keep_picture(page: Page, name: str, theme: str) -> None:
    if name and PICTURED and theme == ("dark" if name == "execution" else "light"):
        page.locator("#signal[data-state=live]").wait_for()
        page.screenshot(path=PICTURES / f"{name}.png")


def test_everything_can_be_reached_and_seen_by_keyboard(page: Page) -> None:
    page.goto("/groups/orders")
    reached: list[str] = []

    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => {
                    const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
                    const name = document.activeElement.textContent.trim() || document.activeElement.id;
                    return `${name} ${outlineStyle !== "none" && parseFloat(outlineWidth) >= 1}`;
                }"""
            )
        )

    assert [place for place in reached if place.endswith("false")] == []
    assert reached[0] == "Skip to content true"
    assert {"Home true", "Settings true", "Pause true", "max_active_jobs true", "Save true"} <= set(reached)


def test_the_choice_of_colours_lasts(page: Page) -> None:
    page.goto("/")
    paper = "getComputedStyle(document.body).backgroundColor"
    as_system: str = page.evaluate(paper)

    page.get_by_role("button", name="Colours").click()
    page.reload()

    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate(paper) != as_system


def test_a_page_can_be_read_and_used_without_scripts(chromium: Browser, served: Served) -> None:
    context = chromium.new_context(base_url=served.address, java_script_enabled=False)
    page = context.new_page()

    page.goto("/groups/orders")
    page.get_by_role("button", name="Cancel running").click()
    page.get_by_role("textbox", name="Reason").fill("a trial")
    page.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("status").filter(has_text="1 group cancelled (")).to_be_visible()
    context.close()

    assert served.do(served.app.audit.list())[0].reason == "a trial"
