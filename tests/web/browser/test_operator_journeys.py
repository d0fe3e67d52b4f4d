"""What an operator does at three in the morning, from the first look to the last click."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect
from tests.support.web_app import PASSWORD, access

if TYPE_CHECKING:
    from tests.support.served import Served
    from tests.web.browser.conftest import Watch

BILL = {"customer": {"name": "Ada"}, "lines": [{"sku": "sidamo"}]}


@pytest.fixture
def served_url(postgres_url: str) -> str:
    """Where a whole server is likely to work: other tests in a browser have one on a file."""
    return postgres_url


def test_a_failure_is_seen_understood_tried_once_and_then_requeued(page: Page, served: Served) -> None:
    for name in ("Ada", "Bob", "Cy"):
        served.do(served.app.queue("charge_card", {**BILL, "customer": {"name": name}}))

    page.goto("/")
    tile = page.locator("#tiles").get_by_role("link").filter(has_text="Dead letters")
    expect(tile).to_contain_text("3")
    tile.click()
    page.get_by_role("link", name="PermissionError card of order").first.click()
    expect(page.locator("#stack")).to_contain_text("Traceback (most recent call last)")
    expect(page.locator("#failure")).to_contain_text("was refused")

    page.go_back()
    menu, all_rows = page.locator("#letters details"), page.get_by_label("Choose all shown")
    expect(menu).to_have_js_property("inert", value=True)
    all_rows.check()
    expect(menu).to_have_js_property("inert", value=False)
    all_rows.uncheck()

    served.world.card_works = True
    page.get_by_role("button", name="Try one").click()
    expect(page.get_by_role("status").filter(has_text="1 dead letter requeued")).to_be_visible()
    expect(page.locator("#kinds tbody td").first).to_have_text("2")

    page.get_by_role("link", name="Executions", exact=True).click()
    expect(page.locator("#executions").get_by_role("row").filter(has_text="completed")).not_to_have_count(0)
    page.goto("/dead-letters")
    page.get_by_role("button", name="Requeue all of this kind").click()
    page.get_by_role("textbox", name="Reason").fill("the bank is back")
    page.get_by_role("button", name="Yes").click()
    expect(page.locator("#letters")).to_contain_text("No dead letters.")

    page.goto("/audit")
    expect(page.locator("#audit")).to_contain_text("the bank is back")
    page.goto("/executions?train=charge_card&state=completed")
    expect(page.locator("#executions tbody tr")).to_have_count(3)


def test_a_limit_is_fixed_and_what_waited_runs_while_the_page_is_watched(page: Page, served: Served) -> None:
    served.do(served.app.queue("roast_batch", {"beans": "patience"}, group="roastery"))
    waiting = served.do(served.app.queue("roast_batch", {"beans": "patience"}, group="roastery"))

    page.goto(f"/queue/{waiting.id}")
    expect(page.locator("#why")).to_contain_text("roastery")
    page.locator("#about").get_by_role("link", name="roastery").click()
    page.get_by_label("Max active jobs").fill("2")
    served.do(served.app.groups.update("roastery", priority=7))
    expect(page.get_by_label("Priority")).to_have_value("7")
    expect(page.get_by_label("Max active jobs")).to_have_value("2")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").filter(has_text="at most 2 active jobs, priority 7")).to_be_visible()
    page.goto(f"/queue/{waiting.id}")
    expect(page.locator("#status")).to_have_text("dispatched")

    page.goto("/groups/roastery")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#switch")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#switch")).to_have_text("on")


def test_a_setting_is_changed_and_undone(page: Page, served: Served) -> None:
    page.goto("/settings")
    page.get_by_label("max_active_jobs", exact=True).fill("50")
    page.get_by_label("max_active_jobs", exact=True).press("Enter")
    expect(page.get_by_role("status").filter(has_text="max_active_jobs is now 50")).to_be_visible()
    expect(page.locator("[data-key=max_active_jobs]")).to_contain_text("operator")

    page.goto("/audit")
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Yes").click()
    expect(page.get_by_role("status").filter(has_text="Undone")).to_be_visible()

    assert served.do(served.app.settings.get("max_active_jobs")) == 20


def test_a_train_is_run_with_a_form_watched_and_cancelled(page: Page, watch: Watch) -> None:
    watch.allowed.add("422 (Unprocessable Entity)")
    page.goto("/trains/roast_batch")
    page.get_by_label("beans").fill("patience")
    page.get_by_label("minutes").fill("long")
    page.get_by_role("button", name="Queue", exact=True).click()
    expect(page.get_by_label("minutes")).to_have_value("long")
    expect(page.get_by_label("minutes")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#wrong-minutes")).to_contain_text("valid number")
    page.get_by_label("minutes").fill("7")
    page.get_by_role("button", name="Queue", exact=True).click()

    expect(page.get_by_role("status").filter(has_text="roast_batch is queued as entry")).to_be_visible()
    page.locator("#about dd a[href*='/executions/']").click()
    expect(page.locator("#state")).to_have_text("in progress")
    expect(page.get_by_role("progressbar")).to_have_attribute("value", "0.4")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Yes").click()
    expect(page.locator("#state")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


def test_a_viewer_logs_in_reads_and_is_refused(page: Page, served: Served, watch: Watch) -> None:
    served.stop()
    served.access = access()
    served.start()
    watch.allowed |= {"401 (Unauthorized)", "403 (Forbidden)"}

    page.goto("/groups/orders")
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill("a guess")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("Wrong name or password")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()

    expect(page).to_have_url(f"{served.address}/groups/orders")
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    status = page.evaluate(
        """async () => {
            const token = document.querySelector("meta[name=csrf-token]").content;
            const body = new URLSearchParams({ action: "disable", csrf_token: token });
            return (await fetch("/groups/orders", { method: "POST", body })).status;
        }"""
    )
    assert status == 403
    assert served.do(served.app.groups.get("orders")).enabled
    page.get_by_role("button", name="Log out vera").click()
    expect(page).to_have_url(f"{served.address}/login")
