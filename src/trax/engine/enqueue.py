"""Enqueue jobs: validate the options of a call, and write the entries to the work queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextvars import Context
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from pydantic import BaseModel

from trax.bounds import PRIORITY_MAX
from trax.engine.parameters import check_input_size
from trax.engine.retry import policy_of
from trax.errors import (
    DefinitionError,
    InvalidArgument,
    StoreError,
    StoreUnavailable,
    did_you_mean,
    format_value,
)
from trax.events import Topic
from trax.records.states import Origin, QueueStatus
from trax.records.work_queue_entry import EntryBatch, NewEntry, QueuedEntry, new_external_ids
from trax.schedule.validate import COUNT, DURATION, FLAG, LABEL, MOMENT, RETRY, TIME_LIMIT, WHOLE
from trax.store import groups
from trax.store.groups import NO_CODE
from trax.store.queue import entry_batches, work_queue
from trax.store.queue.entry_batches import InsertedBatch
from trax.store.types import SQLITE, parse_json
from trax.train import Retry
from trax.train.options import unify_attempts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from trax.records import ManifestGroup
    from trax.records.work_queue_entry import WaitFunction
    from trax.schedule.validate import Requirement
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.store.callers import CallerConnection
    from trax.store.groups import GroupCode
    from trax.store.pipeline import BoundStatement
    from trax.train import Train, TrainOptions


MAX_CHARACTER_BYTES: Final = 4
"""How many bytes a character has at most, in UTF-8."""

STATEMENTS_AT_ONCE: Final = 2
"""How many calls of an event loop PostgreSQL gets at once, before others are combined."""
MAX_SHARED: Final = 500
MAX_SHARED_CHARACTERS: Final = 1_000_000
"""The maximum of entries and text of combined calls; a single entry may be larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueRequest:
    """The jobs that a caller wants, with validated inputs as JSON text.

    `inputs` maps the external id of each entry (and of its runs) to the input. With a `unique` key there is
    one input, and nothing is written while an earlier job with that key has not ended. `rerun_of` is the id
    of the run that is run again.
    """

    train: str
    inputs: Mapping[str, str]
    origin: Origin = Origin.QUEUE
    priority: int = 0
    group: str | None = None
    delay: timedelta | None = None
    at: datetime | None = None
    unique: str | None = None
    timeout_seconds: float | None = None
    retry: str | None = None
    rerun_of: int | None = None


def enqueue(
    connection: Connection,
    request: EnqueueRequest,
    *,
    now: datetime,
    wait_function: WaitFunction,
    group: ManifestGroup | None = None,
    code: GroupCode = NO_CODE,
) -> list[QueuedEntry]:
    """Insert one entry for each input, in one statement if they are not too many.

    `group` is the group of the request if it was created just before: this transaction may not see it yet.
    One that does not exist is created as `code` declares it.
    """
    if group is None and request.group is not None:
        group = groups.get_or_create(connection, [request.group], now=now, code=code, ad_hoc=True)[
            request.group
        ]
    if request.unique is not None:
        return [
            _insert_unique(connection, request, new, group, now).with_wait_function(wait_function)
            for new in request.inputs.items()
        ]
    columns = _columns_of(request, now)
    if group is not None:
        columns |= {"group_id": group.id, "group_priority": group.priority}
    inserted = entry_batches.add_batch(connection, request.inputs, columns, now=now)
    return _build_entries(request, columns, inserted, wait_function)


class PlainEnqueue:
    """A request that one statement writes, as a transaction of its own, in one round trip."""

    def __init__(self, request: EnqueueRequest) -> None:
        self.request = request
        self.columns = _columns_of(request, None)

    def statement(self, dialect: str) -> BoundStatement:
        """The statement. If the group is new, it inserts nothing and returns no rows."""
        request = self.request
        return entry_batches.bind_batch(dialect, request.inputs, self.columns, group=request.group)

    def build_entries(self, inserted: InsertedBatch, wait_function: WaitFunction) -> list[QueuedEntry]:
        return _build_entries(self.request, self.columns, inserted, wait_function)


class EnqueueCombiner:
    """Combines concurrent calls of one event loop that enqueue one entry each: the busier, the more at once.

    A call is sent at once while few are under way. Others wait until one of those ends, and then share a
    statement with all that differ only in their inputs. Each call returns when its entry is committed.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._limit = 1 if store.dialect_name == SQLITE else STATEMENTS_AT_ONCE
        self._sent = 0
        self._waiting: dict[Hashable, _SharedEnqueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def insert(self, plain: PlainEnqueue) -> InsertedBatch | None:
        """Insert the entries of the request; None if nothing was inserted, because the group is new."""
        if self._sent < self._limit or len(plain.request.inputs) > 1:
            return await self._send(plain)
        key = plain.request.group, *plain.columns.items()
        shared = self._waiting.setdefault(key, _SharedEnqueue(plain))
        if not shared.add(plain):
            return await self._send(plain)
        try:
            return await shared.wait_for(plain)
        except StoreError as error:
            if error.transient:  # it may have been committed
                raise
            return await self._send(plain)  # the cause may be another entry

    async def _send(self, plain: PlainEnqueue) -> InsertedBatch | None:
        self._sent += 1
        try:
            rows = await self.store.call_alone(plain.statement(self.store.dialect_name), Topic.WORK_QUEUE)
        finally:
            self._sent -= 1
            self._send_waiting()
        return entry_batches.parse_inserted(rows) if rows else None

    def _send_waiting(self) -> None:
        """Send the shared statement that has waited longest; not one whose calls were all cancelled."""
        while self._waiting:
            shared = self._waiting.pop(next(iter(self._waiting)))
            if shared.close():
                task = asyncio.create_task(shared.send(self._send), context=Context())
                self._tasks.add(task)  # the event loop itself keeps only weak references
                task.add_done_callback(self._tasks.discard)
                return


class _SharedEnqueue:
    """The entries of several calls, which differ only in their inputs, in one statement."""

    def __init__(self, first: PlainEnqueue) -> None:
        self._request = first.request
        self._inputs: dict[str, str] = {}
        self._characters = 0
        self._places: dict[str, int] = {}
        """The place of each entry in the statement, once it is closed."""
        self._inserted: asyncio.Future[InsertedBatch | None] = asyncio.get_running_loop().create_future()

    def add(self, plain: PlainEnqueue) -> bool:
        """Add the entry of a call; False if the statement is large enough."""
        characters = self._characters + sum(map(len, plain.request.inputs.values()))
        if len(self._inputs) == MAX_SHARED or (self._inputs and characters > MAX_SHARED_CHARACTERS):
            return False
        self._inputs |= plain.request.inputs
        self._characters = characters
        return True

    async def wait_for(self, plain: PlainEnqueue) -> InsertedBatch | None:
        """Wait until the entry of this call is inserted; if cancelled before it is sent, it is not."""
        [external_id] = plain.request.inputs
        try:
            inserted = await asyncio.shield(self._inserted)
        except asyncio.CancelledError:
            if not self._places:
                del self._inputs[external_id]
            else:
                await asyncio.wait([self._inserted])  # otherwise its result is unknown
            raise
        if inserted is None:
            return None
        return InsertedBatch([inserted.ids[self._places[external_id]]], inserted.created_at)

    def close(self) -> bool:
        """Add no more entries, and remove none; False if there are none."""
        self._places = {external_id: place for place, external_id in enumerate(self._inputs)}
        return bool(self._places)

    async def send(self, insert: Callable[[PlainEnqueue], Awaitable[InsertedBatch | None]]) -> None:
        try:
            self._inserted.set_result(await insert(PlainEnqueue(replace(self._request, inputs=self._inputs))))
        except asyncio.CancelledError:
            self._inserted.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - raised in each call
            self._inserted.set_exception(error)
            self._inserted.exception()  # otherwise asyncio logs it if all calls were cancelled


def outcome_error(error: StoreUnavailable, request: EnqueueRequest) -> StoreUnavailable:
    """The error for a caller whose entries may be stored: it names them. They are not sent again by us."""
    first = next(iter(request.inputs))
    if request.unique is not None:
        advice = f"queue it again: the unique key {request.unique!r} prevents a second one until its job ends"
    else:
        advice = f'look it up before you queue it again: app.work_queue.list(external_id="{first}")'
    what = (
        f"entry {first}" if len(request.inputs) == 1 else f"{len(request.inputs)} entries, the first {first},"
    )
    explained = StoreUnavailable(f"{error}; {what} may be stored; {advice}")
    explained.may_be_committed = True
    return explained


def is_plain(request: EnqueueRequest) -> bool:
    """Whether one statement can insert the entries: they have no delay, no unique key, and a usual size."""
    may_run_at_once = request.delay is None and request.at is None
    return may_run_at_once and request.unique is None and entry_batches.is_one_statement(request.inputs)


def clamp_priority(priority: int) -> int:
    return min(max(0, priority), PRIORITY_MAX)


def _insert_unique(
    connection: Connection,
    request: EnqueueRequest,
    new: tuple[str, str],
    group: ManifestGroup | None,
    now: datetime,
) -> QueuedEntry:
    """Insert the entry, or return the earlier one with this key whose job has not ended."""
    external_id, text = new
    entry = NewEntry(
        external_id=external_id,
        train=request.train,
        origin=request.origin,
        input=text,
        priority=clamp_priority(request.priority),
        group_id=group.id if group else None,
        group_priority=group.priority if group else 0,
        unique_key=request.unique,
        scheduled_at=_delay_until(request, now),
        timeout_seconds=request.timeout_seconds,
        retry=request.retry,
    )
    return QueuedEntry(**work_queue.add_or_find(connection, entry, now=now).as_fields())


def _columns_of(request: EnqueueRequest, now: datetime | None) -> dict[str, Any]:
    """The columns in which the entries do not differ; without a time, they have no delay."""
    scheduled_at = None if now is None else _delay_until(request, now)
    columns = {
        "train": request.train,
        "origin": request.origin.value,
        "priority": clamp_priority(request.priority),
        "retry": request.retry,
        "timeout_seconds": request.timeout_seconds,
        "scheduled_at": scheduled_at,
        "ready": None if now is None or scheduled_at is None else scheduled_at <= now,
    }
    return {name: value for name, value in columns.items() if value is not None}


def _delay_until(request: EnqueueRequest, now: datetime) -> datetime | None:
    return now + request.delay if request.delay else request.at


def _build_entries(
    request: EnqueueRequest,
    columns: dict[str, Any],
    inserted: InsertedBatch,
    wait_function: WaitFunction,
) -> list[QueuedEntry]:
    fields = {
        "train": request.train,
        "status": QueueStatus.QUEUED,
        "origin": request.origin,
        "priority": columns["priority"],
        "group": request.group,
        "scheduled_at": columns.get("scheduled_at"),
        "created_at": inserted.created_at,
    }
    batch = EntryBatch(fields, parse_json, wait_function)
    return QueuedEntry.build_all(batch, inserted.ids, request.inputs)


class ManyKeywords(TypedDict, total=False):
    """Options of queue calls; they override the options of the train.

    With a `connection` the entries are written in the caller's transaction, and exist only if it commits.
    """

    priority: int | None
    """From 0 to 31; higher goes first. Default: the train's."""
    group: str | None
    """The group, for its limit and priority. Default: the train's, else none."""
    delay: timedelta | None
    """Run no earlier than this much later."""
    at: datetime | None
    """Run no earlier than this time; instead of `delay`."""
    retry: Retry | None
    """The retry policy. Default: the train's, else the settings'."""
    max_attempts: int | None
    """How many runs the job may have in all; overrides `max_attempts` of the retry policy."""
    max_retries: int | None
    """Another name of `max_attempts`."""
    timeout: timedelta | None
    """Time limit of a run. Default: the train's, else `default_job_timeout`."""
    connection: CallerConnection | None
    """Your SQLAlchemy connection or session: the entry exists only if you commit."""
    notify: bool | None
    """With `connection`: False sends no NOTIFY, for a transaction that is prepared; servers poll for it."""


class QueueKeywords(ManyKeywords, total=False):
    """The same for one entry, which may also have a `unique` key."""

    unique: str | None
    """A key: until the job that holds it has ended, queueing returns its entry instead of a new one."""


CHECKS: Final[dict[str, Requirement]] = {
    "priority": WHOLE,
    "group": LABEL,
    "delay": DURATION,
    "at": MOMENT,
    "retry": RETRY,
    "max_attempts": COUNT,
    "timeout": TIME_LIMIT,
    "unique": LABEL,
    "notify": FLAG,
}


ONE_VALUE: Final = (str, bytes, Mapping, BaseModel)
"""Iterable, but one input: a text would be queued letter by letter."""


class EnqueuePlan:
    """How jobs of one train are enqueued under these settings: what does not depend on the call."""

    def __init__(
        self,
        train: Train[Any, Any],
        encode: Callable[[Any], str],
        settings: Settings,
        encode_all: Callable[[list[Any]], list[str]] | None = None,
    ) -> None:
        options = train.options
        self.train = train
        self._encode = encode
        self._encode_all = encode_all
        self.settings = settings
        self._priority = options.priority
        self._group = options.group
        self._timeout_seconds = options.timeout.total_seconds() if options.timeout else None
        self._retry = _retry_json(options, settings)

    def encode(self, values: Iterable[Any]) -> list[str]:
        """The inputs as JSON text; raises InvalidInput for one that the train does not accept."""
        if not isinstance(cast("Any", values), Iterable) or isinstance(values, ONE_VALUE):
            raise InvalidArgument("values", "a list of inputs, or another iterable of them", values)
        given = list(values)
        if self._encode_all is None or len(given) == 1:
            return [self._encode(value) for value in given]
        return self._encode_all(given)

    def build_request(self, texts: list[str], keywords: QueueKeywords) -> EnqueueRequest:
        """The request for jobs with these inputs: JSON text that is valid for the train's input type."""
        inputs = self._check_sizes(texts)
        if not keywords:
            return EnqueueRequest(
                train=self.train.name,
                inputs=inputs,
                priority=self._priority,
                group=self._group,
                timeout_seconds=self._timeout_seconds,
                retry=self._retry,
            )
        overrides: dict[str, Any] = {name: value for name, value in keywords.items() if value is not None}
        if "max_retries" in overrides:
            overrides = unify_attempts(overrides, f"train {self.train.name!r}")
        for name, value in overrides.items():
            if name in CHECKS:
                CHECKS[name](name, value)
            elif name != "connection":
                raise DefinitionError(f"unknown option {format_value(name)}{did_you_mean(name, CHECKS)}")
        if "notify" in overrides and "connection" not in overrides:
            raise DefinitionError("notify needs a connection; without one, Trax commits and notifies itself")
        if "delay" in overrides and "at" in overrides:
            raise DefinitionError("delay and at cannot be combined; give one of them")
        timeout: timedelta | None = overrides.get("timeout")
        return EnqueueRequest(
            train=self.train.name,
            inputs=inputs,
            priority=overrides.get("priority", self._priority),
            group=overrides.get("group", self._group),
            delay=overrides.get("delay"),
            at=overrides.get("at"),
            unique=overrides.get("unique"),
            timeout_seconds=timeout.total_seconds() if timeout else self._timeout_seconds,
            retry=_retry_of_call(self.train.options, overrides, self.settings) or self._retry,
        )

    def _check_sizes(self, texts: list[str]) -> dict[str, str]:
        """The inputs, each with a new external id; raises InvalidInput if one is over `max_input_bytes`."""
        limit = self.settings.max_input_bytes
        if limit is not None and texts and MAX_CHARACTER_BYTES * max(map(len, texts)) > limit:
            for text in texts:
                check_input_size(text, self.train, self.settings)
        return dict(zip(new_external_ids(len(texts)), texts, strict=True))


def _retry_of_call(options: TrainOptions, overrides: dict[str, Any], settings: Settings) -> str | None:
    """The retry policy that the call asks for; None if it asks for none."""
    if "retry" not in overrides and "max_attempts" not in overrides:
        return None
    if "retry" in overrides:
        options = replace(options, retry=overrides["retry"], max_attempts=None)
    if "max_attempts" in overrides:
        options = replace(options, max_attempts=overrides["max_attempts"])
    return _retry_json(options, settings)


def _retry_json(options: TrainOptions, settings: Settings) -> str | None:
    """The retry policy stored in the entry.

    None if the options have none: then the settings apply when the run fails.
    """
    if options.retry is None and options.max_attempts is None:
        return None
    default = Retry(
        max_attempts=settings.default_max_attempts,
        delay=settings.default_retry_delay,
        multiplier=settings.retry_backoff_multiplier,
        max_delay=settings.max_retry_delay,
    )
    return policy_of(options.retry_policy(default)).to_json()
