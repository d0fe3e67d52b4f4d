"""Enqueue jobs: validate the options of a call, and write the entries to the work queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from trax.bounds import PRIORITY_MAX
from trax.engine.parameters import check_input_size
from trax.engine.retry import policy_of
from trax.errors import DefinitionError
from trax.records.states import Origin, QueueStatus
from trax.records.work_queue_entry import NewEntry, WorkQueueEntry, new_external_id
from trax.schedule.validate import COUNT, DURATION, LABEL, MOMENT, RETRY, TIME_LIMIT, WHOLE
from trax.store import groups
from trax.store.queue import work_queue
from trax.store.types import parse_json
from trax.train import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trax.records import ManifestGroup
    from trax.schedule.validate import Requirement
    from trax.settings import Settings
    from trax.store import Connection
    from trax.store.callers import CallerConnection
    from trax.train import Codec, Train, TrainOptions


EntryT = TypeVar("EntryT", bound=WorkQueueEntry)


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
    entry_class: type[EntryT],
    group: ManifestGroup | None = None,
) -> list[EntryT]:
    """Insert one entry for each input, in one statement; returns instances of `entry_class`.

    `group` is the group of the request if it was created just before: this transaction may not see it yet.
    """
    if group is not None:
        groups.prevent_prune(connection, group)
    elif request.group is not None:
        group = groups.get_or_create(connection, [request.group], now=now)[request.group]
    entries = [_entry(request, external_id, text, group, now) for external_id, text in request.inputs.items()]
    if request.unique is not None:
        return [_insert_unique(connection, entry, entry_class, now) for entry in entries]
    ids = work_queue.add(connection, entries, now=now)
    return [
        entry_class(**_entry_fields(entry_id, entry, request.group, now))
        for entry_id, entry in zip(ids, entries, strict=True)
    ]


def enqueue_plain(
    connection: Connection, request: EnqueueRequest, *, now: datetime | None, entry_class: type[EntryT]
) -> list[EntryT] | None:
    """Enqueue a plain request in one or two round trips; None if it is not plain, or its group is new.

    This may commit, so the transaction must not be the caller's.
    """
    if not _is_plain(request):
        return None
    entries = [_entry(request, external_id, text, None, None) for external_id, text in request.inputs.items()]
    if request.group is None:
        added = work_queue.add_and_commit(connection, entries, now=now)
    else:
        added = work_queue.add_to_group(connection, entries, request.group, now=now)
    if not added:
        return None
    return [
        entry_class(
            **_entry_fields(added[entry.external_id][0], entry, request.group, added[entry.external_id][1])
        )
        for entry in entries
    ]


def _is_plain(request: EnqueueRequest) -> bool:
    """Whether the entries are few, have no delay and no unique key."""
    may_run_at_once = request.delay is None and request.at is None
    return may_run_at_once and request.unique is None and 0 < len(request.inputs) <= work_queue.COPY_ABOVE


def clamp_priority(priority: int) -> int:
    return min(max(0, priority), PRIORITY_MAX)


def _insert_unique(
    connection: Connection, entry: NewEntry, entry_class: type[EntryT], now: datetime
) -> EntryT:
    """Insert the entry, or return the earlier one with this key whose job has not ended."""
    found = work_queue.add_or_find(connection, entry, now=now)
    return entry_class(**found.as_fields())


def _entry(
    request: EnqueueRequest, external_id: str, text: str, group: ManifestGroup | None, now: datetime | None
) -> NewEntry:
    return NewEntry(
        external_id=external_id,
        train=request.train,
        origin=request.origin,
        input=text,
        priority=clamp_priority(request.priority),
        group_id=group.id if group else None,
        group_priority=group.priority if group else 0,
        unique_key=request.unique,
        scheduled_at=now + request.delay if request.delay and now else request.at,
        timeout_seconds=request.timeout_seconds,
        retry=request.retry,
    )


def _entry_fields(entry_id: int, entry: NewEntry, group: str | None, now: datetime) -> dict[str, Any]:
    return {
        "id": entry_id,
        "external_id": entry.external_id,
        "train": entry.train,
        "status": QueueStatus.QUEUED,
        "origin": entry.origin,
        "priority": entry.priority,
        "group": group,
        "input": parse_json(entry.input),
        "scheduled_at": entry.scheduled_at,
        "created_at": now,
    }


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
    max_retries: int | None
    """Overrides `max_retries` of the retry policy."""
    timeout: timedelta | None
    """Time limit of a run. Default: the train's, else `default_job_timeout`."""
    connection: CallerConnection | None
    """Your SQLAlchemy connection or session: the entry exists only if you commit."""


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
    "max_retries": COUNT,
    "timeout": TIME_LIMIT,
    "unique": LABEL,
}


class EnqueuePlan:
    """How jobs of one train are enqueued under these settings: what does not depend on the call."""

    def __init__(self, train: Train[Any, Any], encode: Callable[[Any], str], settings: Settings) -> None:
        options = train.options
        self.train = train
        self.encode = encode
        self.settings = settings
        self._priority = options.priority
        self._group = options.group
        self._timeout_seconds = options.timeout.total_seconds() if options.timeout else None
        self._retry = _retry_json(options, settings)

    def build_request(self, texts: Iterable[str], keywords: QueueKeywords) -> EnqueueRequest:
        """The request for jobs with these inputs: JSON text that is valid for the train's input type."""
        overrides: dict[str, Any] = {name: value for name, value in keywords.items() if value is not None}
        for name, value in overrides.items():
            if name in CHECKS:
                CHECKS[name](name, value)
        if "delay" in overrides and "at" in overrides:
            raise DefinitionError("delay and at cannot be combined; give one of them")
        timeout: timedelta | None = overrides.get("timeout")
        return EnqueueRequest(
            train=self.train.name,
            inputs={new_external_id(): check_input_size(text, self.train, self.settings) for text in texts},
            priority=overrides.get("priority", self._priority),
            group=overrides.get("group", self._group),
            delay=overrides.get("delay"),
            at=overrides.get("at"),
            unique=overrides.get("unique"),
            timeout_seconds=timeout.total_seconds() if timeout else self._timeout_seconds,
            retry=_retry_of_call(self.train.options, overrides, self.settings) or self._retry,
        )


def decode_plain_input(value: Any, train: Train[Any, Any], codec: Codec[Any], settings: Settings) -> Any:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return value  # not plain data: an instance of the input type, or invalid
    return codec.decode(check_input_size(text, train, settings))


def _retry_of_call(options: TrainOptions, overrides: dict[str, Any], settings: Settings) -> str | None:
    """The retry policy that the call asks for; None if it asks for none."""
    if "retry" not in overrides and "max_retries" not in overrides:
        return None
    if "retry" in overrides:
        options = replace(options, retry=overrides["retry"], max_retries=None)
    if "max_retries" in overrides:
        options = replace(options, max_retries=overrides["max_retries"])
    return _retry_json(options, settings)


def _retry_json(options: TrainOptions, settings: Settings) -> str | None:
    """The retry policy stored in the entry.

    None if the options have none: then the settings apply when the run fails.
    """
    if options.retry is None and options.max_retries is None:
        return None
    default = Retry(
        max_retries=settings.default_max_retries,
        delay=settings.default_retry_delay,
        multiplier=settings.retry_backoff_multiplier,
        max_delay=settings.max_retry_delay,
    )
    return policy_of(options.retry_policy(default)).to_json()
