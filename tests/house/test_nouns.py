"""A filter that is described once is in Python, the API, the command and the page of its noun."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from inspect import Parameter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any
from unittest.mock import Mock

import pytest
from cyclopts import App, CycloptsError
from fastapi import APIRouter, FastAPI
from tests.support.web_app import browser

from trax import Metadata, Trax, every
from trax.app.executions import Executions
from trax.app.lists import RecordLists
from trax.app.manifests import Manifests
from trax.cli import executions, lists, queue
from trax.engine.enqueue import QueueKeywords
from trax.errors import DefinitionError, InvalidArgument
from trax.records import nouns
from trax.records.listing import ChangedIds
from trax.records.nouns import EXECUTIONS, NOUNS, Filter, ListColumn, Noun, RunFilter
from trax.schedule.builder import Cursor
from trax.store.runs import run_lists
from trax.testing import Harness
from trax.web import Access, create
from trax.web.api.executions import list_logs
from trax.web.api.paging import add_list_route
from trax.web.api.trains import QueueRequest
from trax.web.context import context_of, visitor_of
from trax.web.pages import executions as page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

NAMES = [noun.name for noun in NOUNS]


class Size(StrEnum):
    """How large something is."""

    SMALL = "small"
    LARGE = "large"


class ParcelFilter(RunFilter, total=False):
    """The filters of executions, and one more of each type."""

    colour: Annotated[str | None, Filter("Only parcels of this colour.", placeholder="red")]
    weight: Annotated[int | None, Filter("Only parcels of this weight.")]
    fragile: Annotated[bool | None, Filter("Only fragile parcels.", negative="--sturdy")]
    packed: Annotated[datetime | None, Filter("Only parcels packed at this time.")]
    size: Annotated[Size | str | None, Filter("Only parcels of this size.")]


PARCELS = replace(EXECUTIONS, filters=ParcelFilter)
NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
WANTED = {"colour": "red", "weight": 7, "fragile": False, "packed": NOON, "size": Size.LARGE}
IN_URL = {"colour": "red", "weight": "7", "fragile": "no", "packed": "2027-03-01T12:00:00Z", "size": "large"}
HELP = {name: each.help for name, each in PARCELS.filters_by_name.items() if name in WANTED}


class Parcels:
    """Executions with the filters of parcels; it remembers those that reached the store."""

    def __init__(self, app: Trax) -> None:
        self.searched: dict[str, Any] = {}
        query = replace(run_lists.RUNS, search=self._search)
        self._lists = RecordLists(app.context.store, PARCELS, query)

    async def list(self, **keywords: Any) -> Any:
        return await self._lists.load_list(keywords)

    async def page(self, **keywords: Any) -> Any:
        return await self._lists.page(keywords)

    async def count(self, *, quick: bool = False, **filters: Any) -> Any:
        return await self._lists.count(filters, quick=quick)

    def reached(self) -> dict[str, Any]:
        return {name: self.searched.pop(name) for name in WANTED}

    def _search(self, connection: Any, filters: Any) -> Any:
        self.searched.update(filters)
        return run_lists.RUNS.search(connection, filters)


@pytest.fixture
async def app(url: str) -> AsyncGenerator[Trax]:
    app = Trax(url)
    app.__dict__["executions"] = Parcels(app)
    async with Harness(app):
        yield app


@pytest.fixture
def parcels(app: Trax) -> Parcels:
    return app.__dict__["executions"]


@pytest.mark.parametrize("verb", ["list", "page", "count"])
async def test_an_added_filter_is_checked_in_python_and_reaches_the_store(
    parcels: Parcels, verb: str
) -> None:
    ask = getattr(parcels, verb)

    await ask(**WANTED)

    assert parcels.reached() == WANTED
    with pytest.raises(InvalidArgument, match="weight must be an id"):
        await ask(weight="heavy")
    with pytest.raises(DefinitionError, match="invalid size 'huge'; expected one of small, large"):
        await ask(size="huge")
    with pytest.raises(DefinitionError, match="unknown filter 'color'; did you mean 'colour'"):
        await ask(color="red")


async def test_an_added_filter_is_a_query_parameter_of_the_api(app: Trax, parcels: Parcels) -> None:
    web, router = FastAPI(), APIRouter(prefix="/parcels")
    add_list_route(router, PARCELS, Metadata)
    web.include_router(router)
    web.dependency_overrides = {
        context_of: lambda: SimpleNamespace(app=app, mask=None),
        visitor_of: lambda: None,
    }

    (operation,) = web.openapi()["paths"]["/parcels"].values()
    described = {each["name"]: each for each in operation["parameters"]}
    async with browser(web) as client:
        listed = await client.get("/parcels", params={**IN_URL, "total": "yes"})
        refused = await client.get("/parcels", params={"weight": "heavy", "size": "huge"})

    assert (listed.status_code, refused.status_code) == (200, 422)
    assert parcels.reached() == WANTED
    assert {name: described[name]["description"] for name in WANTED} == HELP


def test_an_added_filter_is_an_option_of_the_command(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def operate(_: object, load: Callable[[Trax], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run(load(app))

    app, commands = Trax(url), App(name="parcels")
    app.__dict__["executions"] = parcels = Parcels(app)
    monkeypatch.setattr(lists, "operate", operate)
    lists.add_list(commands, PARCELS)
    options = ["--colour", "red", "--weight", "7", "--sturdy", "--packed", "2027-03-01T12:00"]

    commands(["list", *options, "--size", "large"], exit_on_error=False, result_action="return_value")
    assert parcels.reached() == WANTED

    with pytest.raises(CycloptsError, match="heavy"):
        commands(["list", "--weight", "heavy"], exit_on_error=False, print_error=False)
    commands(["list", "--help"], exit_on_error=False, result_action="return_value")
    shown = " ".join(capsys.readouterr().out.split())
    app.context.store.close()

    missing = [name for name, text in HELP.items() if f"--{name}" not in shown or text not in shown]
    assert missing == []


async def test_an_added_filter_is_a_field_of_the_page(
    app: Trax, parcels: Parcels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "EXECUTIONS", PARCELS)
    async with browser(create(app, access=Access(allow_anonymous=True))) as client:
        shown = await client.get("/executions", params=IN_URL)
        reached = parcels.reached()
        empty = await client.get("/executions", params={"weight": "heavy", "packed": "soon"})

    assert shown.status_code == empty.status_code == 200
    assert reached == WANTED
    form = shown.text.partition('<form class="filters"')[2].partition("</form>")[0]
    assert [name for name in WANTED if f'name="{name}"' in form] == [*WANTED]
    assert [text for text in ("Colour", "Weight", "Fragile", "Packed", "Size") if text not in form] == []
    assert 'value="red" placeholder="red"' in form
    assert '<option value="large" selected>' in form


async def test_an_added_column_is_in_the_tables_of_the_command_and_the_page(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    column = ListColumn("external_id", "Number of the parcel")
    noun = replace(EXECUTIONS, columns=(*EXECUTIONS.columns, column))
    monkeypatch.setattr(page, "EXECUTIONS", noun)
    app = Trax(url)

    @app.train
    def send(name: str) -> str:
        return name

    async with Harness(app), browser(create(app, access=Access(allow_anonymous=True))) as client:
        await app.run(send, "Ada")
        (run,) = await app.executions.list()
        shown = await client.get("/executions")
        monkeypatch.setattr(lists, "operate", Mock(return_value=[run]))
        lists.show_records(
            noun, database_url=None, as_json=False, count=False, **dict.fromkeys(RunFilter.__annotations__)
        )
    header, row = capsys.readouterr().out.splitlines()

    assert "<th>Number of the parcel</th>" in shown.text
    assert f"<td>{run.external_id}</td>" in shown.text
    assert (header.split("\t")[-1], row.split("\t")[-1]) == ("external id", run.external_id)


@pytest.mark.parametrize("noun", NOUNS, ids=NAMES)
def test_every_noun_is_listed_paged_and_counted_with_its_filters(noun: Noun) -> None:
    resource = getattr(Trax("memory://"), noun.name)

    listed, paged, counted = (parameters(getattr(resource, verb)) for verb in ("list", "page", "count"))

    filters = [*noun.filters_by_name]
    assert listed[:4] == paged[:4] == ["before", "after", "limit", "brief"]
    assert [name for name in listed[4:] if name != "jobs"] == filters
    assert paged[4:] == listed[4:]
    assert counted == ["quick", *filters]


def test_a_job_is_queued_with_the_same_options_in_python_commands_and_http() -> None:
    in_python = set(QueueKeywords.__annotations__) - {"connection", "notify", "retry"}
    in_command = set(inspect.signature(queue.add).parameters)
    in_http = set(QueueRequest.model_fields)

    assert in_command == in_python | {"train", "value", "app", "reason", "database_url", "as_json"}
    assert in_http == in_python | {"input"}


def test_the_lines_of_one_run_are_paged_with_the_same_parameters() -> None:
    in_python, in_command, in_http = (
        set(inspect.signature(verb).parameters) & {"metadata_id", "before", "after", "limit"}
        for verb in (Executions.logs, executions.logs, list_logs)
    )

    assert in_python == in_command == in_http == {"metadata_id", "before", "after", "limit"}


@pytest.mark.parametrize("verb", ["schedule", "schedule_many", "schedule_once"])
def test_a_manifest_is_declared_and_scheduled_with_the_same_parameters(verb: str) -> None:
    declared, at_run_time = (inspect.signature(getattr(kind, verb)) for kind in (Cursor, Manifests))

    assert [shape(each) for each in declared.parameters.values()] == [
        shape(each) for each in at_run_time.parameters.values()
    ]


@pytest.mark.parametrize("noun", ["executions", "manifests", "groups", "work_queue"])
def test_cancel_returns_the_ids_it_cancelled(noun: str) -> None:
    cancel = getattr(Trax("memory://"), noun).cancel

    assert inspect.signature(cancel).return_annotation == "ChangedIds"


def test_changed_ids_are_a_number_and_a_list() -> None:
    changed, nothing = ChangedIds([8, 7]), ChangedIds([])

    assert (changed, changed + 1, f"{changed}", bool(nothing)) == (2, 3, "2", False)
    assert (list(changed), len(changed), changed[0], 7 in changed) == ([7, 8], 2, 7, True)
    assert changed == [7, 8]
    assert changed.ids == (7, 8)
    assert changed != [7]


async def test_before_and_after_compare_the_id_or_name_everywhere(url: str) -> None:
    app = Trax(url)

    @app.train
    def greet(name: str) -> str:
        return name

    for name in ("a", "b", "c"):
        app.schedule(greet, name, name, every(hours=1), group=name)
    async with Harness(app) as h:
        await h.run_until_idle()

        for noun in ("executions", "work_queue", "groups", "manifests"):
            await check_pages(
                getattr(app, noun),
                "external_id" if noun == "manifests" else "name" if noun == "groups" else "id",
            )


async def check_pages(resource: Any, key: str) -> None:
    def keys(records: Any) -> list[Any]:
        return [getattr(record, key) for record in records]

    listed = keys(await resource.list())
    low, middle, high = sorted(listed)

    async def page(**asked: Any) -> Any:
        return (await resource.page(**asked)).items

    for verb in (resource.list, page):
        assert keys(await verb(before=middle)) == [low]
        assert keys(await verb(after=middle)) == [high]
        assert keys(await verb(before=high, limit=1)) == [middle]
        assert keys(await verb(after=low, limit=1)) == [middle]
        assert keys(await verb(after=low)) == [each for each in listed if each != low]
    assert (await resource.count()).number == len(listed)
    assert {type(each) for each in (await resource.page()).items} == {
        type(each) for each in await resource.list()
    }


def parameters(verb: Callable[..., Any]) -> list[str]:
    """The names of the parameters; keywords of a TypedDict by the names of its fields."""
    found: list[str] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        assert parameter.kind in {Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD}
        keywords = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
        fields = getattr(nouns, keywords, None)
        found += fields.__annotations__ if parameter.kind is Parameter.VAR_KEYWORD and fields else [name]
    return found


def shape(parameter: Parameter) -> tuple[str, Any, Any, str]:
    """What a caller sees; without the optional external id that only a run-time schedule generates."""
    annotation = str(parameter.annotation)
    return parameter.name, parameter.kind, parameter.default, annotation.removesuffix(" | None")
