"""A person opens the link of a server, looks around, and leaves."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Error, expect
from tests.support.served import Served

from trax.web import Access

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser, Page
    from tests.web.browser.conftest import Watch


@pytest.fixture
def served(served_url: str) -> Generator[Served]:
    """A server for which nobody has said who may enter."""
    with Served(served_url, access=Access()) as server:
        yield server


def link_to(served: Served, path: str = "/") -> str:
    return f"/login?token={served.do(served.app.sessions.create_link())}&next={path}"


def test_a_link_opens_the_dashboard_and_leaves_the_address_bar(page: Page, served: Served) -> None:
    page.goto(link_to(served))

    expect(page).to_have_url(f"{served.address}/")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    page.get_by_role("link", name="Sessions").click()
    expect(page.get_by_text("this browser")).to_be_visible()


def test_a_used_link_explains_how_to_get_another(
    page: Page, served: Served, chromium: Browser, watch: Watch
) -> None:
    watch.allowed = {"403 (Forbidden)"}
    link = link_to(served)
    other = chromium.new_context(base_url=served.address)
    other.new_page().goto(link)
    other.close()

    page.goto(link)

    expect(page.get_by_role("alert")).to_contain_text("has already been used")
    expect(page.locator("pre")).to_contain_text("trax sessions link")
    page.goto("/executions")
    expect(page).to_have_url(re.compile("/login"))


def test_a_logout_ends_the_session_on_the_server(page: Page, served: Served) -> None:
    page.goto(link_to(served))
    kept = page.context.cookies()

    page.get_by_role("button", name="Log out local").click()

    expect(page.get_by_role("heading", name="Sign in with a link")).to_be_visible()
    page.context.add_cookies([{**one} for one in kept if one.get("name", "").startswith("trax_session")])
    page.goto("/groups")
    expect(page).to_have_url(re.compile("/login"))


def test_signing_out_everywhere_ends_the_sessions_of_all_browsers(
    page: Page, served: Served, chromium: Browser
) -> None:
    other = chromium.new_context(base_url=served.address)
    elsewhere = other.new_page()
    elsewhere.goto(link_to(served))
    page.goto(link_to(served, "/sessions"))
    expect(page.locator("#sessions tbody tr")).to_have_count(2)

    page.get_by_role("button", name="Sign out everywhere").click()
    page.locator("#confirm-yes").click()

    expect(page.get_by_role("heading", name="Sign in with a link")).to_be_visible()
    with suppress(Error):  # the open page may be on its own way to the login
        elsewhere.goto("/groups")
    expect(elsewhere).to_have_url(re.compile("/login"))
    other.close()


def test_an_operator_ends_the_session_of_another_browser(
    page: Page, served: Served, chromium: Browser
) -> None:
    page.goto(link_to(served))
    other = chromium.new_context(base_url=served.address)
    elsewhere = other.new_page()
    elsewhere.goto(link_to(served))
    page.goto("/sessions")

    page.locator("#sessions tbody tr").first.get_by_role("button", name="End").click()

    expect(page.get_by_text("Ended: 1 session")).to_be_visible()
    expect(page.locator("#sessions tbody tr")).to_have_count(1)
    elsewhere.goto("/groups")
    expect(elsewhere).to_have_url(re.compile("/login"))
    other.close()
