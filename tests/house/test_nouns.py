"""The nouns of an app have the same verbs, with the same parameters."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import pytest

from trax import Trax, every
from trax.app.executions import Executions
from trax.app.manifests import Manifests
from trax.cli import audit, dead_letters, executions, groups, manifests, queue, sessions, status
from trax.engine.enqueue import QueueKeywords
from trax.schedule.builder import Cursor
from trax.testing import Harness
from trax.web.api.audit import AuditListQuery
from trax.web.api.dead_letters import DeadLetterListQuery
from trax.web.api.executions import ExecutionListQuery, LogListQuery, list_logs
from trax.web.api.manifests import ManifestListQuery
from trax.web.api.paging import ListQueryByName
from trax.web.api.queue import EntryListQuery
from trax.web.api.sessions import SessionListQuery
from trax.web.api.stats import WorkerListQuery
from trax.web.api.trains import QueueRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel

NOUNS = (
    "audit",
    "dead_letters",
    "executions",
    "groups",
    "logs",
    "manifests",
    "sessions",
    "work_queue",
    "workers",
)
LISTS: dict[str, tuple[Callable[..., None], type[BaseModel]]] = {
    "audit": (audit.list_, AuditListQuery),
    "dead_letters": (dead_letters.list_, DeadLetterListQuery),
    "executions": (executions.list_, ExecutionListQuery),
    "groups": (groups.list_, ListQueryByName),
    "logs": (executions.list_lines, LogListQuery),
    "manifests": (manifests.list_, ManifestListQuery),
    "sessions": (sessions.list_, SessionListQuery),
    "work_queue": (queue.list_, EntryListQuery),
    "workers": (status.list_, WorkerListQuery),
}
"""The command and the HTTP query that list each noun."""


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_is_listed_paged_and_counted_with_the_same_parameters(noun: str) -> None:
    resource = getattr(Trax("memory://"), noun)

    listed, paged, counted = (parameters(getattr(resource, verb)) for verb in ("list", "page", "count"))

    assert listed[:4] == paged[:4] == ["before", "after", "limit", "brief"]
    assert listed[4:] == paged[4:]
    assert counted[0] == "quick"
    assert set(counted[1:]) == set(listed[4:]) - {"jobs"}


@pytest.mark.parametrize("noun", NOUNS)
def test_a_list_has_the_same_filters_in_python_commands_and_http(noun: str) -> None:
    command, query = LISTS[noun]
    paging = {"before", "after", "limit"}

    in_python = set(parameters(getattr(Trax("memory://"), noun).list)) - paging - {"brief", "jobs"}
    in_command = set(inspect.signature(command).parameters) - {"database_url", "as_json"}
    in_http = set(query.model_fields) - {"full"}

    assert in_command == in_python | paging | {"count"}
    assert in_http == in_python | paging | {"total"}


def test_a_job_is_queued_with_the_same_options_in_python_commands_and_http() -> None:
    in_python = set(QueueKeywords.__annotations__) - {"connection", "notify", "retry", "max_retries"}
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
def test_cancelling_tells_what_was_cancelled(noun: str) -> None:
    cancel = getattr(Trax("memory://"), noun).cancel

    assert inspect.signature(cancel).return_annotation == "list[int]"


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
        fields = getattr(inspect.getmodule(verb), keywords, None)
        found += fields.__annotations__ if parameter.kind is Parameter.VAR_KEYWORD and fields else [name]
    return found


def shape(parameter: Parameter) -> tuple[str, Any, Any, str]:
    """What a caller sees; without the optional external id that only a run-time schedule generates."""
    annotation = str(parameter.annotation)
    return parameter.name, parameter.kind, parameter.default, annotation.removesuffix(" | None")
