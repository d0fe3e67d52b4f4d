"""The workers page and API."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

from tests.support.flow_seeding import register_server
from tests.support.html_reader import Reader
from tests.support.web_app import NOON, browser, railway

from trax.testing import Harness
from trax.web import Access, create
from trax.web.pages import home as page
from trax.worker.app_context import WorkFilter, WorkFilterKeywords
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2
    import pytest


@asynccontextmanager
async def watched(url: str, **settings: Any) -> AsyncGenerator[tuple[Harness, httpx2.AsyncClient]]:
    app = railway(url, **settings)
    web = create(app, access=Access(allow_anonymous=True))
    async with Harness(app, now=NOON) as harness, browser(web) as client:
        yield harness, client


async def started(harness: Harness, **only: Unpack[WorkFilterKeywords]) -> Worker:
    context = harness.app.context
    takes = WorkFilter.parse(context.trains, only)
    return await Worker.start(context, await context.store.open(), slots=4, work_filter=takes)


async def test_a_worker_is_shown_with_its_filters_version_and_labels(url: str) -> None:
    async with watched(url, app_version="2027.3", host_labels={"zone": "b"}) as (harness, client):
        await started(harness, trains=["serve_coffee"], groups=["bar"])
        shown = await Reader(client).open("/workers")
        (told,) = (await client.get("/api/v1/workers")).json()["items"]

    host = told["worker"]["host"]
    assert f"{host} process" in shown.text
    assert "serve_coffee only of bar 2027.3 Trax" in shown.text
    assert "zone=b 0 of 4" in shown.text
    assert {name: told["worker"][name] for name in ("trains", "groups", "app_version", "host_labels")} == {
        "trains": ["serve_coffee"],
        "groups": ["bar"],
        "app_version": "2027.3",
        "host_labels": {"zone": "b"},
    }


async def test_a_worker_without_filters_is_shown_as_unrestricted(url: str) -> None:
    async with watched(url) as (harness, client):
        await started(harness)
        shown = await Reader(client).open("/workers")
        (told,) = (await client.get("/api/v1/workers")).json()["items"]

    assert "serve_coffee of all groups" in shown.text
    assert told["worker"]["groups"] is None


async def test_many_workers_are_shown_a_page_at_a_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "SHOWN_WORKERS", 2)
    async with watched(url) as (harness, client):
        ids = [(await started(harness)).id for _ in range(3)]
        reader = Reader(client)
        first = await reader.open("/workers")
        (further,) = [link for link in first.links if "after=" in link]
        second = await reader.open(further)
        asked = {"after": ids[0], "limit": 1, "total": True}
        told = (await client.get("/api/v1/workers", params=asked)).json()

    assert [page.text.count("alive") for page in (first, second)] == [2, 1]
    assert "/workers" in second.links
    assert [one["worker"]["id"] for one in told["items"]] == [ids[1]]
    assert (told["next"], told["previous"], told["total"]["count"]) == (ids[1], ids[1], 3)


async def test_servers_that_declare_different_manifests_are_named(url: str) -> None:
    async with watched(url) as (harness, client):
        for pid in (1, 2):
            await register_server(harness.app, declares=f"set {pid}", pid=pid, now=harness.now)
        shown = await Reader(client).open("/workers")

    assert (
        "servers of app 'default' declare different manifests or groups: here (process 1), here (process 2)"
        in shown.text
    )
