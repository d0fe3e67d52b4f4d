"""How each public method is called well, so that one argument at a time can be replaced by something odd."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from tests.support.surface import Parameter, app_methods, parameters_of, public_callables
from tests.support.web_app import Order

from trax import Actor, Calendar, Group, Retry, Trax, TraxError, acting, every, exclude, junction
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS: Final = 30.0
"""Whatever is passed, the call is over by then."""
LONGEST_MESSAGE: Final = 3_000


def railway(url: str) -> Trax:
    """A train that can fail, a manifest to do things to, and one elsewhere that must go on."""
    app = Trax(url)

    @app.train(retry=Retry(max_attempts=0))
    def serve_coffee(order: Order) -> str:
        if order.cups > 9:
            raise ValueError("too many cups")
        return order.customer

    app.schedule(serve_coffee, "ada", Order(customer="Ada"), every(hours=1), group=Group("bar", priority=1))
    app.schedule(serve_coffee, "root", Order(customer="Ada"), every(hours=1), group="bar")
    app.schedule(serve_coffee, "bystander", Order(customer="Bob"), every(hours=1), group="elsewhere")
    return app


@junction
def brew(order: Order) -> str:
    return order.customer


def serve_coffee(app: Trax) -> Any:
    return app.trains.get("serve_coffee")


GOOD: Final[dict[str, Callable[[Trax], Any]]] = {
    "audit_id": lambda _: 1,
    "dead_letter_id": lambda _: 1,
    "delay": lambda _: timedelta(minutes=1),
    "depends_on": lambda _: "root",
    "entry": lambda app: asyncio.run(app.work_queue.get(1)),
    "entry_id": lambda _: 1,
    "external_id": lambda _: "ada",
    "factory": lambda _: 5,
    "hook": lambda _: print,
    "ids": lambda _: [1],
    "input": lambda _: Order(customer="Ada"),
    "items": lambda _: {"x": Order(customer="Ada")},
    "kind": lambda _: int,
    "limit": lambda _: 5,
    "metadata_id": lambda _: 1,
    "name": lambda _: "bar",
    "note": lambda _: "done",
    "route": lambda _: brew,
    "secret": lambda _: "a secret",
    "secrets": lambda _: "a secret of enough characters",
    "timeout": lambda _: timedelta(),
    "to": lambda _: "local",
    "train": serve_coffee,
    "trains": serve_coffee,
    "value": lambda _: Order(customer="Ada"),
    "values": lambda _: [Order(customer="Ada")],
    "what": lambda _: "ada",
    "when": lambda _: every(hours=1),
    "windows": lambda _: [exclude.dates("2026-12-25")],
    "worker_id": lambda _: 1,
}
"""A good value for each parameter that must be given, by its name."""
ALSO: Final[dict[str, tuple[str, ...]]] = {
    "dead_letters.acknowledge": ("ids", "note"),
    "dead_letters.requeue": ("ids",),
    "route": ("trains",),
    "sync.wait": ("timeout",),
    "train": ("what", "route"),
}
"""What a call needs though its signature does not say so."""
NOT_CALLED: Final = {
    "close": "takes nothing",
    "run_in_app_loop": "takes a coroutine of the caller, and awaits it",
    "sessions.begin": "called by the dashboard, with a session that it made",
    "sessions.begin_by_link": "called by the dashboard, with a session that it made",
    "serve": "runs until a signal; its options are those of start",
    "stats.keep_up_in_background": "takes nothing, and has no end",
    "stop": "takes an event of the caller",
}
DECLARING: Final = {
    *("calendar", "group", "http_endpoint", "limit_runs", "provide", "receiver", "route", "schedule"),
    *("on_cancelled", "on_completed", "on_failed", "on_queue", "on_started", "on_state_changed"),
    *("schedule_many", "schedule_once", "start", "train", "web"),
}
"""Change the app object itself: each call gets a new one."""
OWN_CODE: Final = {
    ("manifests.schedule_many", "configure_each"),
    ("schedule_many", "configure_each"),
    ("start", "on_progress"),
}
"""Called with what the caller passed: what that raises is the caller's."""


@dataclass(frozen=True)
class Place:
    """One parameter of one method."""

    method: str
    parameter: Parameter

    def __str__(self) -> str:
        return f"{self.method}({self.parameter.name})"


def places(app: Trax) -> Iterator[Place]:
    for name, method in app_methods(app).items():
        if name not in NOT_CALLED:
            yield from (Place(name, parameter) for parameter in parameters_of(method))


async def call(app: Trax, place: Place, value: Any) -> None:
    """Call the method with this value in this place, and with good ones in all others."""
    caller = railway("memory://") if place.method in DECLARING else app
    method: Any = attrgetter(place.method)(caller)
    name, also = place.parameter.name, ALSO.get(place.method, ())
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for each in parameters_of(method):
        if each.name == name or each.is_required or each.name in also:
            given = value if each.name == name else await asyncio.to_thread(GOOD[each.name], caller)
            if each.is_positional:
                positional.append(given)
            else:
                keywords[each.name] = given
    if place.method == "train" and name != "what":
        positional[0] = "brewing"
    try:
        await _finish(caller, place, method, positional, keywords)
    finally:
        if caller is not app:
            await caller.stop()


async def _finish(
    app: Trax, place: Place, method: Any, positional: list[Any], keywords: dict[str, Any]
) -> None:
    async with asyncio.timeout(SECONDS):
        if place.method.startswith("sync."):
            await asyncio.to_thread(method, *positional, **keywords)
            return
        result = method(*positional, **keywords)
        if inspect.isawaitable(result):
            await result
        elif place.method in {"receiver", "http_endpoint"}:
            async with result:
                pass
        if place.method in {"schedule", "schedule_many", "schedule_once", "group", "calendar"}:
            async with Harness(app):
                pass


def problem_of(error: BaseException) -> str | None:
    """Why nobody should see this error; None for one that says what was wrong."""
    if isinstance(error, TraxError):
        text = str(error)
        if len(text) > LONGEST_MESSAGE:
            return f"a message of {len(text)} characters"
        return None if text.encode(errors="replace").decode() == text else "a message that nobody can print"
    is_signature = isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
    return None if is_signature else f"{type(error).__name__}: {str(error)[:200]!r}"


async def go_on(harness: Harness) -> None:
    """A job and a manifest of somebody else are executed, whatever happened before."""
    app = harness.app
    await app.settings.reset()
    entry = await app.queue("serve_coffee", {"customer": "Eve"}, group="elsewhere", priority=31)
    await harness.advance(hours=1)
    await harness.run_until_idle()

    runs = await app.executions.list(group="elsewhere", since=harness.now, limit=2)
    assert [run.state for run in runs] == ["completed", "completed"]
    assert {run.manifest for run in runs} == {None, "bystander"}
    assert (await app.work_queue.get(entry.id)).metadata_id in {run.id for run in runs}


MADE_BY_TRAX: Final = {
    *(
        "Cancelled",
        "Conflict",
        "DeadLetter",
        "Done",
        "EntryCancelled",
        "Failed",
        "Interrupted",
        "InvalidInput",
    ),
    *(
        "Junction",
        "LogLine",
        "Manifest",
        "ManifestGroup",
        "Metadata",
        "NotFound",
        "Outcome",
        "Reason",
        "Route",
    ),
    *("RunCancelled", "RunInterrupted", "RunTimedOut", "StoreUnavailable", "Train", "TraxError"),
    *("UnknownTrain", "WaitTimedOut", "WorkQueueEntry", "current"),
    *(
        "AuditEntry",
        "Blocks",
        "Count",
        "Cursor",
        "DeadLetterGroup",
        "FailingTrain",
        "GroupGraph",
        "GroupStats",
    ),
    *("HistoryFinding", "Home", "HttpEndpoint", "Overview", "QueuedEntry", "Receiver", "RecordPage"),
    *("RunningJob", "SettingOrigin", "Settings", "States", "Throughput", "TrainDuration", "Verification"),
    *("WebSession", "WorkerRecord", "WorkerView"),
}
"""Public for annotations and `except`: values that nobody has to make."""
PLAIN_VALUES: Final = {
    *("Calendar", "Cancel", "Cancellation", "Refused", "Submission", "Submitter"),
}
"""Without checks of their own: what reads them checks, as app.schedule does with a calendar."""
GOOD_PARTS: Final[dict[str, Any]] = {
    "actor": Actor("olga"),
    "calendar": Calendar("holidays", ()),
    "day": "mon",
    "days": "mon",
    "delay": timedelta(minutes=1),
    "end": "2027-01-02",
    "function": len,
    "id": "x",
    "input": 1,
    "junction": brew,
    "limit": 5,
    "name": "olga",
    "protocol": int,
    "segment": brew,
    "source": Order,
    "start": "2027-01-01",
    "target": str,
    "text": "0 7 * * *",
    "url": "memory://",
}
"""A good value for each parameter of what is in `trax.__all__` that must be given."""


def parts() -> dict[str, Callable[..., Any]]:
    """What people make declarations of: `every`, `cron.daily`, `Retry`, `Trax` itself."""
    passive = MADE_BY_TRAX | PLAIN_VALUES
    return {name: what for name, what in public_callables().items() if name.partition(".")[0] not in passive}


def build_part(make: Callable[..., Any], name: str, value: Any) -> Any:
    """Call it with this value for this parameter, and with good ones for those that must be given."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for each in parameters_of(make):
        if each.name == name or each.is_required:
            given = value if each.name == name else GOOD_PARTS[each.name]
            if each.is_positional:
                positional.append(given)
            else:
                keywords[each.name] = given
    built = make(*positional, **keywords)
    if make is acting:
        with built:
            return None
    return built
