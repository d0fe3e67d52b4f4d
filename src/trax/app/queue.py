"""Enqueue jobs: validate the inputs, then write entries to the work queue."""

from __future__ import annotations

import asyncio
import inspect
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from trax.clock import utc_now
from trax.engine.actor import actor_context, record_audit
from trax.engine.enqueue import (
    EnqueueRequest,
    build_request,
    clamp_priority,
    decode_plain_input,
    encode_plain_input,
    enqueue,
    enqueue_plain,
)
from trax.engine.retry import default_policy
from trax.errors import DefinitionError, NotFound, TraxError
from trax.events import Topic
from trax.masking import NOT_STORED, SECRET_KEY
from trax.records import Metadata, State
from trax.records.audit import MAX_IDS
from trax.records.retry_policy import RetryPolicy
from trax.records.states import Origin
from trax.store import callers, groups
from trax.store.runs import metadata
from trax.store.types import parse_json
from trax.train import junction
from trax.train import train as train_over
from trax.train.options import check_not_reserved
from trax.train.secrets import VARIABLE
from trax.worker.entry import QueuedEntry
from trax.worker.recorded_run import RecordedRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from trax.engine.enqueue import ManyKeywords, QueueKeywords
    from trax.engine.open_store import LazyStore
    from trax.records import ManifestGroup
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.store.callers import SessionOrConnection
    from trax.store.runs.metadata import RerunRequest
    from trax.train import Hook, Train
    from trax.worker.parts import Parts


MASKED_INPUT: Final = f'{{"{SECRET_KEY}":"{NOT_STORED}"}}'


class Enqueuer:
    """Enqueues jobs of an app's trains, from async and from blocking code."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._trains = parts.trains
        self._parameters = parts.parameters
        self._wake = partial(parts.events.emit, Topic.WORK_QUEUE)
        self._live = parts.live
        self._hooks = parts.hooks
        self._entry_waiter = parts.entry_waiter
        self._telemetry = parts.telemetry

    async def enqueue_one(
        self, train: Train[Any, Any] | str, value: Any, keywords: QueueKeywords
    ) -> QueuedEntry:
        return (await self._insert_traced(*self._validate(train, [value], keywords)))[0]

    async def enqueue_many(
        self, train: Train[Any, Any] | str, values: Iterable[Any], keywords: ManyKeywords
    ) -> list[QueuedEntry]:
        return await self._insert_traced(*self._validate(train, values, _refuse_unique(keywords)))

    def enqueue_one_blocking(
        self, train: Train[Any, Any] | str, value: Any, keywords: QueueKeywords
    ) -> QueuedEntry:
        return self._insert_traced_blocking(*self._validate(train, [value], keywords))[0]

    def enqueue_many_blocking(
        self, train: Train[Any, Any] | str, values: Iterable[Any], keywords: ManyKeywords
    ) -> list[QueuedEntry]:
        return self._insert_traced_blocking(*self._validate(train, values, _refuse_unique(keywords)))

    async def rerun(self, metadata_id: int) -> QueuedEntry:
        """Enqueue the train and input of a run again, independent of any manifest.

        The new job keeps group, priority, timeout, retry policy and unique key. Without code, as in a command
        or a separate dashboard, the workers validate the input.
        """
        store = await self._store.open()
        found = await store.ask(metadata.load_rerun_request, metadata_id)
        if found is None:
            raise NotFound(f"there is no execution {metadata_id}")
        has_code = len(self._trains) > 0
        train = self._trains.get(found.train) if has_code else placeholder_train(found.train)
        text = _input_for_rerun(metadata_id, found.input)
        if has_code:
            self._parameters.input_codec(train).decode(text)
        keywords: QueueKeywords = {"priority": found.priority, "group": found.group, "unique": found.unique}
        settings = self._live.current
        request = build_request(train, [text], keywords, settings, origin=Origin.RERUN)
        limit = request.timeout_seconds if found.timeout_seconds is None else found.timeout_seconds
        retry = _retry_of(found, settings) or request.retry
        request = replace(request, timeout_seconds=limit, retry=retry, rerun_of=metadata_id)
        return (await self._insert_traced(train, request, None))[0]

    def _validate(
        self, train: Train[Any, Any] | str, values: Iterable[Any], keywords: QueueKeywords
    ) -> tuple[Train[Any, Any], EnqueueRequest, SessionOrConnection | None]:
        """Validate the whole call before the database is used."""
        connection = keywords.get("connection")
        caller_connection = None if connection is None else callers.resolve_connection(connection)
        settings = self._live.current
        if isinstance(train, str):
            train = self._trains.get(train)
            codec = self._parameters.input_codec(train)
            texts = (encode_plain_input(value, train, codec, settings) for value in values)
        else:
            texts = map(self._parameters.codec_of_registered(train).encode, values)
        return train, build_request(train, texts, keywords, settings), caller_connection

    async def _insert_traced(
        self, train: Train[Any, Any], request: EnqueueRequest, caller_connection: SessionOrConnection | None
    ) -> list[QueuedEntry]:
        telemetry = self._telemetry.now
        if telemetry is None:
            return await self._insert(train, request, caller_connection)
        with telemetry.trace_enqueue(request) as traced:
            return await self._insert(train, traced, caller_connection)

    async def _insert(
        self, train: Train[Any, Any], request: EnqueueRequest, caller_connection: SessionOrConnection | None
    ) -> list[QueuedEntry]:
        for result in _call_queue_hooks(self._hooks.queue_hooks(train), request):
            if inspect.isawaitable(result):
                await result
        if not request.inputs:
            return []
        if caller_connection is None:
            store = await self._store.open()
            entries = await store.call(_enqueue_in_own_transaction, store, request)
        else:
            ours = self._store
            group = None
            if await callers.run_in_transaction(
                caller_connection, ours.display_address, _has_new_group, request
            ):
                group = await asyncio.to_thread(self._insert_group, request)
            entries = await callers.run_in_transaction(
                caller_connection, ours.display_address, _enqueue, ours, request, group
            )
            callers.after_commit(caller_connection, self._wake)
        return [entry.with_wait_function(self._entry_waiter) for entry in entries]

    def _insert_traced_blocking(
        self, train: Train[Any, Any], request: EnqueueRequest, caller_connection: SessionOrConnection | None
    ) -> list[QueuedEntry]:
        telemetry = self._telemetry.now
        if telemetry is None:
            return self._insert_blocking(train, request, caller_connection)
        with telemetry.trace_enqueue(request) as traced:
            return self._insert_blocking(train, traced, caller_connection)

    def _insert_blocking(
        self, train: Train[Any, Any], request: EnqueueRequest, caller_connection: SessionOrConnection | None
    ) -> list[QueuedEntry]:
        if callers.is_async(caller_connection):
            raise DefinitionError(
                f"app.sync cannot use {type(caller_connection).__name__}; use `await app.queue(…)`"
            )
        for result in _call_queue_hooks(self._hooks.queue_hooks(train), request):
            if inspect.iscoroutine(result):
                result.close()
                raise DefinitionError(
                    f"train {train.name!r}: on_queue is async, app.sync is blocking; use `await app.queue(…)`"
                )
        if not request.inputs:
            return []
        if caller_connection is None:
            store = self._store.open_blocking()
            entries = store.run(_enqueue_in_own_transaction, store, request)
        else:
            ours = self._store
            is_new = callers.run_in_transaction_blocking(
                caller_connection, ours.display_address, _has_new_group, request
            )
            group = self._insert_group(request) if is_new else None
            entries = callers.run_in_transaction_blocking(
                caller_connection, ours.display_address, _enqueue, ours, request, group
            )
            callers.after_commit(caller_connection, self._wake)
        return [entry.with_wait_function(self._entry_waiter) for entry in entries]

    def _insert_group(self, request: EnqueueRequest) -> ManifestGroup:
        """Insert the group in a separate, short transaction: the caller's may stay open for long."""
        name = str(request.group)
        with self._store.store_as_is() as store:
            return store.run(
                lambda connection: groups.get_or_create(connection, [name], now=store.now(connection))[name]
            )


def _has_new_group(connection: Connection, request: EnqueueRequest) -> bool:
    return request.group is not None and groups.must_create_first(connection, request.group)


def _refuse_unique(keywords: ManyKeywords) -> QueueKeywords:
    keyed = cast("QueueKeywords", keywords)
    if keyed.get("unique") is not None:
        raise DefinitionError(
            "queue_many does not accept unique; use queue() with a unique key for each entry"
        )
    return keyed


def _call_queue_hooks(hooks: list[Hook], request: EnqueueRequest) -> Iterator[Any]:
    """Call each `on_queue` hook for each new entry, with the record its run would have.

    A hook cannot change the entry; if it raises, no entry is written.
    """
    for external_id, text in request.inputs.items() if hooks else ():
        record = Metadata(
            id=0,
            external_id=external_id,
            train=request.train,
            state=State.PENDING,
            group=request.group,
            priority=clamp_priority(request.priority),
            input=parse_json(text),
            created_at=utc_now(),
        )
        yield from (hook(record) for hook in hooks)


@junction
def _placeholder(value: Any) -> Any:
    """Stand in for the code of a train of which only the name is known."""
    return value


def placeholder_train(name: str) -> Train[Any, Any]:
    """A train without its code: the workers have it, and validate the input."""
    check_not_reserved(name)
    return train_over(name, _placeholder)


def _retry_of(rerun: RerunRequest, settings: Settings) -> str | None:
    """The retry policy of the run; `max_retries` of its manifest overrides the policy's."""
    if rerun.max_retries is None:
        return rerun.retry
    policy = RetryPolicy.from_json(rerun.retry) or default_policy(settings)
    return replace(policy, max_retries=rerun.max_retries).to_json()


def _input_for_rerun(metadata_id: int, text: str | None) -> str:
    if text is None:
        raise TraxError(
            f"execution {metadata_id} cannot be rerun: its input was not saved (setting save_inputs)"
        )
    if text.startswith('{"_truncated": true'):
        raise TraxError(
            f"execution {metadata_id} cannot be rerun: its input was too large to be saved "
            "(setting max_parameter_bytes)"
        )
    if MASKED_INPUT in text:
        raise TraxError(
            f"execution {metadata_id} cannot be rerun: its input has a secret that was not stored; "
            f"${VARIABLE} was not set where it ran; queue it again with the secret"
        )
    return text


def _enqueue_in_own_transaction(
    connection: Connection, store: Store, request: EnqueueRequest
) -> list[QueuedEntry]:
    """Enqueue in a new transaction; in one statement, unless an audit entry is written too."""
    if actor_context() is not None:
        return _enqueue(connection, store, request)
    quickly = enqueue_plain(connection, request, now=store.statement_now(connection), entry_class=QueuedEntry)
    return _enqueue(connection, store, request) if quickly is None else quickly


def _enqueue(
    connection: Connection,
    store: Store | LazyStore,
    request: EnqueueRequest,
    group: ManifestGroup | None = None,
) -> list[QueuedEntry]:
    return enqueue_with_audit(connection, request, now=store.now(connection), group=group)


def enqueue_with_audit(
    connection: Connection, request: EnqueueRequest, *, now: datetime, group: ManifestGroup | None = None
) -> list[QueuedEntry]:
    """Write entries, and an audit entry if an operator enqueues them."""
    entries = enqueue(connection, request, now=now, entry_class=QueuedEntry, group=group)
    if actor_context() is not None:
        after = {"entry_ids": [entry.id for entry in entries[:MAX_IDS]], "priority": request.priority}
        if request.rerun_of is not None:
            record_audit(
                connection, "executions.rerun", "execution", [request.rerun_of], now=now, after=after
            )
        else:
            record_audit(
                connection, "trains.queue", "train", [request.train], now=now, count=len(entries), after=after
            )
    return entries


async def queue(parts: Parts, train: str, value: Any, options: QueueKeywords) -> QueuedEntry:
    """Enqueue a train by name, with plain data as its input."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"the input cannot be encoded as JSON: {error}") from None
    unregistered_train = placeholder_train(train)
    store = await parts.store.open()
    request = build_request(unregistered_train, [text], options, parts.settings)
    return (await store.call(_enqueue_unchecked, store, request)).with_wait_function(parts.entry_waiter)


def _enqueue_unchecked(connection: Connection, store: Store, request: EnqueueRequest) -> QueuedEntry:
    return enqueue_with_audit(connection, request, now=store.now(connection))[0]


async def run_by_name(parts: Parts, name: str, value: Any) -> Metadata:
    """Run it now, in this process. Errors of the run are in its record; only errors before it are raised."""
    train = parts.trains.get(name)
    codec = parts.parameters.input_codec(train)
    decoded = decode_plain_input(value, train, codec, parts.settings)
    store = await parts.store.open()
    run = RecordedRun(parts, store, train)
    try:
        await run.run(decoded)
    except Exception:
        if run.metadata_id is None:
            raise
    found = None if run.metadata_id is None else await store.ask(metadata.get, run.metadata_id)
    if found is None:
        raise NotFound(f"train {name!r}: the record of this run was already deleted")
    return found
