"""Lists stay small and quick beside long inputs: what they do not show is not even read."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event
from tests.support.html_reader import Reader
from tests.support.roastery_dashboard import roastery_dashboard
from tests.support.web_app import browser, web_app

from trax import Trax
from trax.testing import Harness
from trax.web import Access, create

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from tests.support.web_app import WebApp

LONG = re.compile(r"\b(?:trax[._])?(\w+)\.(input|output|stack_trace|junctions)\b")
EVERYTHING = {"metadata", "work_queue", "dead_letter", "manifest", "log"}
PAGES = {
    "/": EVERYTHING,
    "/executions": EVERYTHING,
    "/executions?state=failed&within=1+day": EVERYTHING,
    "/queue": EVERYTHING,
    "/dead-letters": EVERYTHING,
    "/manifests": EVERYTHING,
    "/groups": EVERYTHING,
    "/groups/billing": EVERYTHING,
    "/trains/charge_card": EVERYTHING,
    "/workers": EVERYTHING,
    "/logs": EVERYTHING,
    "/manifests/import-shop": {"metadata", "work_queue", "dead_letter"},
    "/api/v1/executions?total=true": EVERYTHING,
    "/api/v1/queue": EVERYTHING,
    "/api/v1/dead-letters": EVERYTHING,
    "/api/v1/dead-letters/groups": EVERYTHING,
    "/api/v1/manifests": EVERYTHING,
}
"""Pages, and the tables whose long columns they must not read."""


@contextmanager
def long_columns_read() -> Generator[set[tuple[str, str]]]:
    """Which columns that may be long were asked for, as (table, column)."""
    found: set[tuple[str, str]] = set()

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.update(LONG.findall(statement))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.fixture
async def room(url: str) -> AsyncGenerator[WebApp]:
    async with web_app(url) as opened:
        yield opened


async def test_a_list_never_reads_what_it_does_not_show(url: str) -> None:
    async with roastery_dashboard(url) as room:
        await room.a_day_passes()
        for path, tables in PAGES.items():
            with long_columns_read() as read:
                page = await room.open(path)

            assert page.status == 200, path
            assert {one for one in read if one[0] in tables} == set(), path


async def test_a_full_read_of_a_long_column_is_noticed(url: str) -> None:
    async with roastery_dashboard(url) as room:
        await room.a_day_passes()
        (run, *_) = await room.app.executions.list(limit=1)
        with long_columns_read() as read:
            await room.open(f"/executions/{run.id}")

    assert ("metadata", "input") in read


async def test_a_list_is_brief_unless_full_is_requested(room: WebApp) -> None:
    await room.app.queue("serve_coffee", {"customer": "Eve", "cups": 10})
    await room.harness.run_until_idle()

    for noun in ("/queue", "/executions", "/dead-letters", "/manifests"):
        brief, full = (await room.get(noun))["items"], (await room.get(noun, full=True))["items"]
        assert [one["input"] for one in brief] == [None] * len(full), noun
        assert all(one["input"]["customer"] for one in full), noun
    (failed,) = (await room.get("/executions", state="failed"))["items"]
    (whole,) = (await room.get("/executions", state="failed", full=True))["items"]
    assert (failed["stack_trace"], failed["failure_reason"]) == (None, "10 cups are too many")
    assert whole["stack_trace"].startswith("Traceback")


async def test_a_very_long_value_is_replaced_by_a_note_in_lists_only(room: WebApp) -> None:
    entry = await room.app.queue("serve_coffee", {"customer": "x" * 5000})

    (listed,) = (await room.get("/queue", full=True))["items"]
    alone = await room.get(f"/queue/{entry.id}")

    assert listed["input"]["_omitted"] is True
    assert len(alone["input"]["customer"]) == 5000


async def test_the_page_of_a_run_stays_small_with_any_amount_of_data(url: str) -> None:
    app = Trax(url, max_input_bytes=10**7)

    @app.train(max_retries=0)
    def tell_all(numbers: list[int]) -> list[int]:
        for number in range(100):
            logging.getLogger("talker").warning("%s", f"<{number}>" * 500)
        if len(numbers) % 2:
            raise ValueError("<no>" * 10_000)
        return numbers

    async with Harness(app) as h, browser(create(app, access=Access(allow_anonymous=True))) as client:
        await app.queue_many(tell_all, [list(range(20_000)), list(range(20_001))])
        await h.run_until_idle()
        runs = await app.executions.list(brief=True)
        (letter,) = await app.dead_letters.list(brief=True)
        paths = [f"/executions/{run.id}" for run in runs] + [f"/dead-letters/{letter.id}", "/logs"]
        sizes = {path: (await Reader(client).open(path)).size for path in paths}

    assert {path: size for path, size in sizes.items() if not 5_000 < size <= 60_000} == {}


async def test_a_long_message_of_an_exception_is_cut_in_a_list(room: WebApp) -> None:
    @room.app.train(max_retries=0)
    async def complain(_: str) -> None:
        raise ValueError("no " * 10_000)

    await room.app.queue(complain, "x")
    await room.harness.run_until_idle()

    (listed,) = await room.app.executions.list(train="complain", brief=True)
    (paged,) = (await room.app.executions.page(train="complain", brief=True)).items
    (letter,) = await room.app.dead_letters.list(brief=True)
    whole = await room.app.executions.get(listed.id)

    assert listed == paged
    assert [len(one.failure_reason or "") for one in (listed, letter, whole)] == [300, 300, 30_000]
    assert (listed.id, listed.train, listed.state, listed.ended_at) == (
        whole.id,
        whole.train,
        whole.state,
        whole.ended_at,
    )
