"""A page that lives: it renews what changed, leaves alone what somebody is at, and says when it cannot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from playwright.sync_api import Page, expect

if TYPE_CHECKING:
    from tests.support.served import Served
    from tests.web.browser.conftest import Watch


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


def test_rows_that_are_chosen_stay_while_others_arrive(page: Page, served: Served) -> None:
    entry = served.do(served.app.queue("roast_batch", {"beans": "later"}, group="roastery", at=tomorrow()))
    page.goto("/queue")
    page.get_by_label(f"Choose entry {entry.id}").check()

    another = served.do(served.app.queue("roast_batch", {"beans": "later"}, at=tomorrow()))
    expect(page.get_by_text("1 chosen")).to_be_visible()
    expect(page.get_by_label(f"Choose entry {entry.id}")).to_be_checked()
    page.get_by_label(f"Choose entry {entry.id}").uncheck()
    expect(page.get_by_label(f"Choose entry {another.id}")).to_be_visible()


def test_a_page_shows_when_it_is_stale_and_recovers(page: Page, served: Served, watch: Watch) -> None:
    watch.allowed |= {"ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "Failed to load resource"}
    page.goto("/executions")
    expect(page.locator("#signal")).to_have_text("Live")

    served.stop()
    expect(page.locator("#stale")).to_be_visible()

    served.start()
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#signal")).to_have_text("Live")
    served.do(served.app.queue("roast_batch", {"beans": "Sidamo"}))
    expect(page.locator("#executions")).to_contain_text("roast_batch")
