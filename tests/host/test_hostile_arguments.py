"""Impossible arguments are refused by name, before a driver or the calendar refuses them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.hostile import DURATIONS, IDS, MOMENTS, NAMES, NUMBERS
from tests.support.web_app import Order, railway

from trax import (
    Calendar,
    Group,
    InvalidInput,
    NotFound,
    Retry,
    RetryAfter,
    Snooze,
    Trax,
    cron,
    every,
    exclude,
    fire_all,
)
from trax.bounds import EARLIEST, LARGEST_COUNT, LATEST, LONGEST_DURATION
from trax.errors import DefinitionError
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    Ask = Callable[[Trax, Any], Awaitable[Any]]

ADA: dict[str, Any] = {"customer": "Ada"}
BY_ID: dict[str, Ask] = {
    "executions.get": lambda app, it: app.executions.get(it),
    "executions.cancel": lambda app, it: app.executions.cancel([it]),
    "executions.rerun": lambda app, it: app.executions.rerun(it),
    "executions.logs": lambda app, it: app.executions.logs(it),
    "executions.logs after": lambda app, it: app.executions.logs(1, after=it),
    "executions.logs before": lambda app, it: app.executions.logs(1, before=it),
    "executions.list before": lambda app, it: app.executions.list(before=it),
    "executions.list parent_id": lambda app, it: app.executions.list(parent_id=it),
    "executions.page after": lambda app, it: app.executions.page(after=it),
    "executions.count": lambda app, it: app.executions.count(parent_id=it),
    "work_queue.get": lambda app, it: app.work_queue.get(it),
    "work_queue.cancel": lambda app, it: app.work_queue.cancel([it]),
    "work_queue.list": lambda app, it: app.work_queue.list(before=it),
    "dead_letters.get": lambda app, it: app.dead_letters.get(it),
    "dead_letters.list": lambda app, it: app.dead_letters.list(before=it),
    "dead_letters.requeue": lambda app, it: app.dead_letters.requeue([it]),
    "dead_letters.acknowledge": lambda app, it: app.dead_letters.acknowledge([it], "done"),
    "audit.get": lambda app, it: app.audit.get(it),
    "audit.undo": lambda app, it: app.audit.undo(it),
    "audit.list": lambda app, it: app.audit.list(before=it),
    "logs.page": lambda app, it: app.logs.page(metadata_id=it),
    "workers.get": lambda app, it: app.workers.get(it),
    "workers.list": lambda app, it: app.workers.list(after=it),
}
BY_MOMENT: dict[str, Ask] = {
    "executions.list since": lambda app, at: app.executions.list(since=at),
    "executions.list until": lambda app, at: app.executions.list(until=at),
    "executions.count": lambda app, at: app.executions.count(since=at),
    "audit.list since": lambda app, at: app.audit.list(since=at),
    "audit.list until": lambda app, at: app.audit.list(until=at),
    "queue at": lambda app, at: app.queue("serve_coffee", ADA, at=at),
}
BY_NAME: dict[str, Ask] = {
    "executions.list": lambda app, name: app.executions.list(train=name),
    "executions.list external_id": lambda app, name: app.executions.list(external_id=name),
    "executions.count": lambda app, name: app.executions.count(group=name),
    "work_queue.list": lambda app, name: app.work_queue.list(manifest=name),
    "manifests.get": lambda app, name: app.manifests.get(name),
    "manifests.trigger": lambda app, name: app.manifests.trigger(name),
    "manifests.cancel": lambda app, name: app.manifests.cancel(name),
    "manifests.delete": lambda app, name: app.manifests.delete(name),
    "manifests.enable": lambda app, name: app.manifests.enable(name),
    "manifests.list": lambda app, name: app.manifests.list(after=name),
    "manifests.page": lambda app, name: app.manifests.page(text=name),
    "groups.get": lambda app, name: app.groups.get(name),
    "groups.update": lambda app, name: app.groups.update(name, priority=1),
    "groups.trigger": lambda app, name: app.groups.trigger(name),
    "groups.cancel": lambda app, name: app.groups.cancel(name),
    "groups.list": lambda app, name: app.groups.list(after=name),
    "dead_letters.list": lambda app, name: app.dead_letters.list(manifest=name),
    "dead_letters.requeue": lambda app, name: app.dead_letters.requeue(fingerprint=name),
    "logs.page": lambda app, name: app.logs.page(text=name),
    "audit.list": lambda app, name: app.audit.list(target=name),
    "stats.groups": lambda app, name: app.stats.groups(name=name),
    "stats.graph": lambda app, name: app.stats.graph(name),
    "queue group": lambda app, name: app.queue("serve_coffee", ADA, group=name),
    "queue unique": lambda app, name: app.queue("serve_coffee", ADA, unique=name),
}
BY_DURATION: dict[str, Ask] = {
    "manifests.trigger": lambda app, wait: app.manifests.trigger("ada", delay=wait),
    "queue delay": lambda app, wait: app.queue("serve_coffee", ADA, delay=wait),
    "queue timeout": lambda app, wait: app.queue("serve_coffee", ADA, timeout=wait),
    "schedule_once": lambda app, wait: app.manifests.schedule_once(brewing(app), "o", Order(**ADA), wait),
    "schedule timeout": lambda app, wait: scheduled(app, timeout=wait),
    "schedule variance": lambda app, wait: scheduled(app, variance=wait),
    "schedule misfire_threshold": lambda app, wait: scheduled(app, misfire_threshold=wait),
}
BY_NUMBER: dict[str, Ask] = {
    "queue max_retries": lambda app, many: app.queue("serve_coffee", ADA, max_retries=many),
    "schedule max_retries": lambda app, many: scheduled(app, max_retries=many),
    "schedule priority": lambda app, many: scheduled(app, priority=many),
    "schedule max_instances": lambda app, many: scheduled(app, max_instances=many),
    "groups.update max_active_jobs": lambda app, many: app.groups.update("bar", max_active_jobs=many),
    "groups.update priority": lambda app, many: app.groups.update("bar", priority=many),
}
DECLARED: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "Retry max_retries": (lambda many: Retry(max_retries=many), NUMBERS),
    "Retry multiplier": (
        lambda many: Retry(multiplier=many),
        (0.5, 1e308, float("inf"), float("nan"), 10**400),
    ),
    "Retry jitter": (lambda many: Retry(jitter=many), (-1, 2, float("nan"), 10**400, True)),
    "Retry delay": (lambda wait: Retry(delay=wait), DURATIONS),
    "Retry max_delay": (lambda wait: Retry(max_delay=wait), DURATIONS),
    "RetryAfter": (RetryAfter, DURATIONS),
    "Snooze": (Snooze, DURATIONS),
    "Group": (lambda many: Group("g", max_active_jobs=many), NUMBERS),
    "fire_all": (fire_all, (*NUMBERS, 0, 1001)),
    "every": (lambda many: every(seconds=many), (*NUMBERS[:-2], 0, 1e308)),
    "every days": (lambda many: every(days=many), (68 * 365 + 1, float("nan"), 10**400)),
    "variance": (lambda wait: every(minutes=1, variance=wait), DURATIONS),
}


def brewing(app: Trax) -> Any:
    return app.trains.get("serve_coffee")


def scheduled(app: Trax, **how: Any) -> Awaitable[Any]:
    return app.manifests.schedule(brewing(app), "s", Order(**ADA), every(minutes=1), **how)


@pytest.fixture
async def harness(url: str) -> AsyncGenerator[Harness]:
    made = railway(url)

    @made.train
    def count_cups(cups: list[int]) -> int:
        return sum(cups)

    assert count_cups
    async with Harness(made) as opened:
        yield opened


@pytest.fixture
def app(harness: Harness) -> Trax:
    return harness.app


@pytest.mark.parametrize(
    ("verbs", "values"),
    [(BY_ID, IDS), (BY_MOMENT, MOMENTS), (BY_NAME, NAMES), (BY_DURATION, DURATIONS), (BY_NUMBER, NUMBERS)],
    ids=["ids", "moments", "names", "durations", "numbers"],
)
async def test_an_impossible_argument_is_refused_by_its_name(
    app: Trax, verbs: dict[str, Ask], values: tuple[Any, ...]
) -> None:
    for name, ask in verbs.items():
        for value in values:
            with pytest.raises(InvalidInput) as refused:
                await ask(app, value)

            assert len(refused.value.errors) == 1, name
            assert "must be" in str(refused.value)


@pytest.mark.parametrize("what", [2**63 - 1, "9" * 19, "9" * 30, "run:" + "9" * 30, "entry:9", "9" * 200])
async def test_an_unused_id_is_not_found(app: Trax, what: Any) -> None:
    with pytest.raises(NotFound):
        await app.why(what)


async def test_why_refuses_what_is_neither_an_id_nor_a_name(app: Trax) -> None:
    odd: tuple[Any, ...] = (2**63, 10**5000, -1, True, 1.5, None, "9" * 201)
    for what in odd:
        with pytest.raises(InvalidInput, match="what must be an id"):
            await app.why(what)


async def test_nothing_is_started_without_a_name(app: Trax) -> None:
    nothing: Any = None
    for verb in (app.manifests.trigger, app.manifests.cancel, app.groups.trigger, app.groups.cancel):
        with pytest.raises(InvalidInput, match="must be text"):
            await verb(nothing)

    assert await app.work_queue.list() == []


@pytest.mark.parametrize("name", DECLARED)
def test_a_declaration_out_of_bounds_is_refused(name: str) -> None:
    declare, values = DECLARED[name]
    for value in values:
        with pytest.raises(DefinitionError):
            declare(value)


async def test_a_value_just_within_the_bounds_works(harness: Harness) -> None:
    """The longest, the largest and the latest, in every column at once."""
    app = harness.app
    retry = Retry(
        max_retries=LARGEST_COUNT,
        delay=LONGEST_DURATION,
        multiplier=1000,
        max_delay=LONGEST_DURATION,
        jitter=1,
    )
    how: dict[str, Any] = {"retry": retry, "timeout": LONGEST_DURATION, "max_retries": LARGEST_COUNT}
    entry = await app.queue("serve_coffee", ADA, delay=LONGEST_DURATION, priority=31, **how)
    await app.queue("serve_coffee", ADA, at=LATEST)
    await app.queue("serve_coffee", {**ADA, "cups": 10}, at=EARLIEST, **how)
    await scheduled(
        app,
        variance=LONGEST_DURATION,
        misfire_threshold=LONGEST_DURATION,
        max_instances=LARGEST_COUNT,
        on_misfire=fire_all(1000),
        **how,
    )
    await app.manifests.schedule_once(brewing(app), "late", Order(**ADA), LONGEST_DURATION)
    await app.manifests.trigger("ada", delay=LONGEST_DURATION)
    await app.groups.update("bar", max_active_jobs=LARGEST_COUNT, priority=31)

    await harness.run_until_idle()
    await harness.advance(days=1)
    await harness.run_until_idle()

    (failed,) = await app.executions.list(state="failed")
    waiting = await app.work_queue.list(status="queued", limit=100)
    assert failed.failure_reason == "10 cups are too many"
    assert entry.id in {one.id for one in waiting}
    assert failed in await app.executions.list(since=EARLIEST, until=LATEST)


# found by tests/host/test_hostile_calls.py


async def test_an_option_that_does_not_exist_is_not_ignored(app: Trax) -> None:
    misspelt: dict[str, Any] = {"dealy": timedelta(hours=1)}
    with pytest.raises(DefinitionError, match=r"unknown option 'dealy'; did you mean 'delay'\?"):
        await app.queue("serve_coffee", ADA, **misspelt)

    assert await app.work_queue.list() == []


async def test_workers_are_counted_and_paged(app: Trax) -> None:
    assert (await app.workers.count()).number == 0
    assert (await app.workers.page()).items == ()


@pytest.mark.parametrize("option", ["trains", "groups"])
async def test_a_worker_with_a_filter_by_an_impossible_name_does_not_start(option: str) -> None:
    only: Any = {option: ["\ud800"]}
    app = railway("memory://")

    with pytest.raises(DefinitionError):
        await app.start(**only)

    assert app.loops == []


def test_one_name_is_not_a_list_of_names_to_mask() -> None:
    password: Any = "password"

    with pytest.raises(InvalidInput, match="mask must be a list of field names"):
        railway("memory://").web(mask=password)


async def test_a_message_names_the_first_fields_and_how_many_more_there_are(app: Trax) -> None:
    with pytest.raises(InvalidInput, match=r"; and 9,980 more$") as refused:
        await app.queue_many("count_cups", [["x"] * 10_000])

    assert len(refused.value.errors) == 10_000


@pytest.mark.parametrize("windows", [(1,), "mon", (exclude.dates("2027-01-01"), None)])
def test_a_calendar_of_anything_else_is_refused(windows: Any) -> None:
    app = railway("memory://")
    with pytest.raises(InvalidInput, match="windows must be"):
        app.calendar("holidays", windows)
    with pytest.raises(InvalidInput, match="exclude must be"):
        app.schedule(brewing(app), "s", Order(**ADA), every(minutes=1), exclude=Calendar("holidays", windows))


def test_a_time_zone_is_text() -> None:
    """Python's own `ZoneInfo` takes a pair for a key and its value."""
    pair: Any = ("UTC", 2)

    with pytest.raises(DefinitionError, match="unknown time zone"):
        cron("0 7 * * *", tz=pair)
