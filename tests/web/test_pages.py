"""Every page, with something on it and with nothing, read without scripts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.support.html_reader import Reader, inside
from tests.support.kept_rows import DIALECTS, module_database
from tests.support.roastery import Roastery
from tests.support.roastery_dashboard import EVIL, NOON, RoasteryDashboard, roastery_dashboard
from tests.support.web_app import PASSWORD, access, browser

from trax import Trax
from trax.app.workers import Workers
from trax.testing import Harness
from trax.web import Access, Role, Token, create

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

LARGEST_PAGE = 60_000
PAGES = [
    "/",
    "/trains",
    "/groups",
    "/manifests",
    "/queue",
    "/executions",
    "/dead-letters",
    "/workers",
    "/logs",
    "/audit",
    "/settings",
]


READS_ONLY = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DIALECTS)
async def day(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[RoasteryDashboard]:
    """A day has passed, for all who only read about it."""
    with module_database(request, tmp_path_factory, request.param) as url:
        async with roastery_dashboard(url) as room:
            await room.a_day_passes()
            yield room


async def test_the_page_of_an_execution_without_an_output_gives_the_reason() -> None:
    app = Trax("memory://")

    @app.train(save_outputs=False)
    def secret(number: int) -> int:
        return number

    @app.train
    def plain(number: int) -> None:
        del number

    async with Harness(app, now=NOON), browser(create(app, access=Access(allow_anonymous=True))) as client:
        reader = Reader(client)
        await app.run(plain, 1)
        await app.run(secret, 1)
        pages = [await reader.open(f"/executions/{number}") for number in (1, 2)]
        await app.settings.update(save_outputs=False)
        pages.append(await reader.open("/executions/1"))

    assert "No output." in pages[0].text
    assert "Outputs of this train are not saved: its option save_outputs is off." in pages[1].text
    assert "Outputs are not saved: the setting save_outputs is off." in pages[2].text


@pytest.mark.parametrize("path", PAGES)
async def test_an_empty_page_has_instructions(path: str) -> None:
    app = Trax("memory://")
    async with Harness(app, now=NOON), browser(create(app, access=Access(allow_anonymous=True))) as client:
        page = await Reader(client).open(path)

    assert page.status == 200
    assert page.handlers == []


@READS_ONLY
async def test_all_that_is_linked_is_there(day: RoasteryDashboard) -> None:
    seen: set[str] = set()
    waiting = list(PAGES)
    broken: list[tuple[str, int]] = []
    while waiting and len(seen) < 400:
        path = waiting.pop()
        page = await day.open(path)
        if page.status != 200:
            broken.append((path, page.status))
        if path.startswith("/api/"):
            continue  # a record as plain JSON is no page
        assert page.size <= LARGEST_PAGE, path
        assert page.handlers == [], path
        assert all(script.get("src") for script in page.scripts), path
        links = {link.partition("#")[0] for link in page.links if inside(link)}
        waiting += sorted(links - seen - set(waiting))
        seen |= {path, *links}

    assert broken == []
    assert len(seen) > 60


@READS_ONLY
async def test_text_of_a_job_is_never_markup_of_a_page(day: RoasteryDashboard) -> None:
    runs = await day.app.executions.list(train="charge_card")
    letters = await day.app.dead_letters.list()
    paths = ["/", "/executions", "/dead-letters", "/queue", "/logs"]
    paths += [f"/executions/{run.id}" for run in runs] + [f"/dead-letters/{letter.id}" for letter in letters]

    for path in paths:
        page = await day.open(path)

        assert EVIL not in page.source
        assert "onerror" not in "".join(page.handlers)
    assert EVIL in (await day.open(f"/executions/{runs[0].id}")).text


@READS_ONLY
async def test_secrets_in_an_input_are_hidden(day: RoasteryDashboard) -> None:
    (*_, run) = await day.app.executions.list(train="charge_card")

    page = await day.open(f"/executions/{run.id}")
    again = await day.open("/trains/charge_card", like=run.id)

    assert "hunter2" not in page.source + again.source
    assert "••••••" in page.text
    assert again.fields["in:customer.name"]["value"] == "Ada"
    assert again.fields["in:token"]["value"] == "•••••• /token"


@READS_ONLY
async def test_a_failure_is_shown_with_its_junction_and_stack(day: RoasteryDashboard) -> None:
    (*_, run) = await day.app.executions.list(train="charge_card")

    page = await day.open(f"/executions/{run.id}")

    assert "PermissionError in charge_card" in page.text
    assert "card of order 14133 was refused" in page.text
    assert "Traceback (most recent call last)" in page.text
    assert "the bank did not like it" in page.text


async def test_a_manifest_shows_its_next_runs_and_why_it_does_not_run_now(url: str) -> None:
    async with roastery_dashboard(url) as room:
        await room.harness.run_until_idle()

        page = await room.open("/manifests/roast-morning")

    assert "at 06:30 on Monday through Saturday (Europe/Berlin)" in page.text
    assert "it is next due at 2027-03-02 05:30:00 UTC" in page.text
    assert "Tue 02 Mar 05:30 Tue 02 Mar 06:30" in page.text
    assert "on 2026-12-25 from 22:00 to 05:00" in page.text


async def test_a_dependent_shows_its_parent_and_dependents(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/manifests/close-day")

    assert {"/manifests/import-shop", "/manifests/report-day"} <= set(page.links)
    assert "after each success of import-shop" in page.text


async def test_an_entry_shows_why_it_waits(url: str) -> None:
    async with roastery_dashboard(url) as room:
        entry = await room.app.queue("roast_batch", {"beans": "Sidamo"}, delay=timedelta(hours=2))

        page = await room.open(f"/queue/{entry.id}")

    assert "14:00" in page.text
    assert page.has_button("Cancel")


async def test_filters_are_in_the_address_and_lists_continue(url: str) -> None:
    async with roastery_dashboard(url) as room:
        await room.app.queue_many("roast_batch", [{"beans": f"bag {number}"} for number in range(120)])

        first = await room.open("/queue", train="roast_batch", status="queued")
        (older,) = [link for link in first.links if "before=" in link]
        second = await room.open(older)
        (oldest,) = [link for link in second.links if "before=" in link]
        last = await room.open(oldest)
        other = await room.open("/queue", status="cancelled")

    assert "train=roast_batch" in older
    assert "status=queued" in older
    assert [page.text.count("roast_batch") for page in (first, second, last)] == [50, 50, 20]
    assert "No entries match these filters." in other.text


@READS_ONLY
async def test_administrative_trains_are_hidden_by_default(day: RoasteryDashboard) -> None:

    async with browser(create(day.app, access=Access(allow_anonymous=True))) as newcomer:
        reader = Reader(newcomer)
        usual = await reader.open("/executions")
        wanted = await reader.open("/executions", admin="1")
        remembered = await reader.open("/executions")
        hidden = await reader.open("/executions", admin="0")

    assert ["trax." in page.text for page in (usual, wanted, remembered, hidden)] == [
        False,
        True,
        True,
        False,
    ]


async def test_invalid_parameters_of_a_page_are_ignored(url: str) -> None:
    async with roastery_dashboard(url) as room:
        for path in PAGES:
            page = await room.open(
                path, state="odd", status="odd", before="x", after="0", by="year", level="loud"
            )

            assert page.status == 200

        assert (await room.open("/executions/99")).status == 404
        assert (await room.open("/executions/99999999999999999999999")).status in {404, 422}
        assert (await room.open("/manifests/nobody")).status == 404
        assert (await room.open("/trains/nobody")).status == 404


async def test_a_failed_page_reveals_only_the_id_of_the_log_line(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_self: object, **_: object) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(Workers, "list", fail)
    async with roastery_dashboard(url) as room:
        failed = await room.open("/workers", limit="7")
        missing = await room.open("/executions/99")

    (logged,) = [line for line in caplog.records if line.name == "trax.web.problems"]
    assert failed.status == 500
    assert "hunter2" not in failed.source
    assert "An unexpected error occurred." in failed.text
    assert logged.getMessage().rpartition(" ")[2] in failed.text
    assert {"/workers?limit=7", "/"} <= set(failed.links)
    assert "There is no execution 99." in missing.text
    assert "Try again" not in missing.text


async def test_an_unauthorized_visitor_gets_no_link_home(url: str) -> None:
    async with roastery_dashboard(
        url, Access(tokens={"ci": Token("a token of many letters", Role.VIEWER)})
    ) as room:
        refused = await room.open("/executions")

    assert refused.status == 401
    assert "Send a token: Authorization: Bearer …" in refused.text
    assert "Home" not in refused.text


@READS_ONLY
async def test_a_viewer_reads_everything_and_finds_nothing_to_press(day: RoasteryDashboard) -> None:
    (letter, *_) = await day.app.dead_letters.list()
    (run, *_) = await day.app.executions.list()
    details = ["/trains/charge_card", "/groups/orders", "/manifests/close-day"]

    async with browser(create(day.app, access=Access(allow_anonymous=Role.VIEWER))) as client:
        for path in [*PAGES, *details, f"/executions/{run.id}", f"/dead-letters/{letter.id}"]:
            page = await Reader(client).open(path)
            changing = [form for form in page.forms if form.method == "post" and "yours" not in form.action]

            assert page.status == 200
            assert not any(form.buttons for form in changing), path


async def test_pages_work_wherever_they_are_mounted(url: str) -> None:
    app = Roastery(url).app()
    async with Harness(app, now=NOON):
        outer = Starlette(routes=[Mount("/ops/trax", create(app, access=Access(allow_anonymous=True)))])
        async with browser(outer) as client:
            reader = Reader(client)
            home = await reader.open("/ops/trax/")
            group = await reader.open("/ops/trax/groups/orders")
            paused = await reader.send(group, "Pause")

    assert home.status == 200
    assert all(link.startswith("/ops/trax/") for link in home.links if inside(link))
    assert all(str(script["src"]).startswith("/ops/trax/static/") for script in home.scripts)
    assert (paused.path, paused.has_button("Resume")) == ("/ops/trax/groups/orders", True)


async def test_files_beside_a_page_are_kept_by_browsers_for_good(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/")

        answers = [await room.reader.client.get(str(script["src"])) for script in page.scripts]
        unversioned = await room.reader.client.get("/static/trax.css")

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert {answer.headers["cache-control"] for answer in answers} == {"public, max-age=31536000, immutable"}
    assert unversioned.headers["cache-control"] == "no-cache"


async def test_people_log_in_and_come_back_to_where_they_wanted(url: str) -> None:
    async with roastery_dashboard(url, access()) as room:
        page = await room.open("/manifests/close-day")
        wrong = await room.send(page, "Log in", {"name": "vera", "password": "guess"})
        inside_now = await room.send(wrong, "Log in", {"name": "vera", "password": PASSWORD})
        out = await room.send(inside_now, "Log out vera")

    assert (page.path, page.fields["next"]["value"]) == ("/login", "/manifests/close-day")
    assert (wrong.status, wrong.fields["name"]["value"]) == (401, "vera")
    assert "Wrong name or password" in wrong.text
    assert inside_now.path == "/manifests/close-day"
    assert not inside_now.has_button("Run now")
    assert out.path == "/login"


async def test_retired_manifests_are_marked_and_listed_separately(url: str) -> None:
    async with roastery_dashboard(url) as room:
        await room.app.manifests.delete("roast-morning")

        listed = await room.open("/manifests")
        apart = await room.open("/manifests?enabled=retired")
        page = await room.open("/manifests/roast-morning")

    assert "/manifests/roast-morning" not in listed.links
    assert "/manifests/roast-morning" in apart.links
    assert ("Next due" in listed.text, "Retired" in listed.text) == (True, False)
    assert ("Next due" in apart.text, "Retired" in apart.text) == (False, True)
    assert "it has been retired since" in page.text
    assert "None: the manifest is retired." in page.text
    assert "Run now" not in page.text
