"""`app.queue`: validate jobs and write them to the work queue; the same for trains known only by name."""

from __future__ import annotations

import asyncio
import inspect
import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from trax.clock import utc_now
from trax.engine.actor import actor_context, load_acting, record_audit
from trax.engine.enqueue import (
    EnqueueCombiner,
    EnqueuePlan,
    EnqueueRequest,
    PlainEnqueue,
    clamp_priority,
    enqueue,
    is_plain,
    outcome_error,
)
from trax.engine.open_store import check_may_open
from trax.engine.parameters import decode_plain_input
from trax.engine.retry import default_policy
from trax.engine.seed_groups import code_of
from trax.errors import DefinitionError, InvalidArgument, NotFound, StoreUnavailable, TraxError
from trax.events import Topic
from trax.masking import NOT_STORED, SECRET_KEY
from trax.records import Metadata, State
from trax.records.audit import MAX_IDS
from trax.records.manifest import RetryPolicy
from trax.records.states import Origin
from trax.store import callers, groups, workers
from trax.store.announce import silence
from trax.store.groups import NO_CODE
from trax.store.queue.entry_batches import parse_inserted
from trax.store.runs import metadata
from trax.store.types import parse_json
from trax.train import Train, junction
from trax.train import train as define_train
from trax.train.options import check_not_reserved
from trax.train.seal import merge_fields, refuse_unknown, seal_fields
from trax.train.secrets import VARIABLE
from trax.worker.recorded_run import RecordedRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from trax.engine.enqueue import ManyKeywords, QueueKeywords
    from trax.engine.live_settings import LiveSettings
    from trax.engine.open_store import LazyStore
    from trax.records import ManifestGroup
    from trax.records.work_queue_entry import QueuedEntry, WaitFunction
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.store.callers import SessionOrConnection
    from trax.store.groups import GroupCode
    from trax.store.runs.metadata import RerunRequest
    from trax.worker.app_context import AppContext


MASKED_INPUT: Final = f'{{"{SECRET_KEY}":"{NOT_STORED}"}}'


class Enqueuer:
    """Writes the jobs of an app's code to the work queue, for async and blocking callers.

    Every call becomes one `EnqueueRequest`: for a train, for the name of one with plain data, or for a name
    whose code only the workers have (`has_code=False`).
    """

    def __init__(self, context: AppContext) -> None:
        self._store = context.store
        self._trains = context.trains
        self._parameters = context.parameters
        self._wake = partial(context.events.emit, Topic.WORK_QUEUE)
        self._live = context.live
        self._hooks = context.hooks
        self._entry_waiter = context.entry_waiter
        self._telemetry = context.telemetry
        self._plans: dict[Train[Any, Any] | str, EnqueuePlan] = {}
        self._code = code_of(context.name, context.declarations.find_group)
        self._combiners: WeakKeyDictionary[asyncio.AbstractEventLoop, EnqueueCombiner] = WeakKeyDictionary()

    async def enqueue(
        self,
        train: Train[Any, Any] | str,
        values: Iterable[Any],
        keywords: QueueKeywords,
        *,
        has_code: bool = True,
    ) -> list[QueuedEntry]:
        """Validate the whole call, then insert the entries in one transaction."""
        caller_connection = _caller_connection(keywords)
        plan = self._plan(train, has_code=has_code)
        request = plan.build_request(plan.encode(values), keywords)
        return await self._insert(plan.train, request, caller_connection, notify=self._notifies(keywords))

    def enqueue_blocking(
        self, train: Train[Any, Any] | str, values: Iterable[Any], keywords: QueueKeywords
    ) -> list[QueuedEntry]:
        caller_connection = _caller_connection(keywords)
        plan = self._plan(train)
        request = plan.build_request(plan.encode(values), keywords)
        return self._insert_blocking(plan.train, request, caller_connection, notify=self._notifies(keywords))

    def _notifies(self, keywords: QueueKeywords) -> bool:
        """Whether a caller's transaction notifies other processes."""
        return keywords.get("notify") is not False and self._live.current.notifications

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
        plan = self._plan(found.train, has_code=has_code)
        text = _input_for_rerun(metadata_id, found.input)
        if has_code:
            self._parameters.input_codec(plan.train).decode(text)
        keywords: QueueKeywords = {"priority": found.priority, "group": found.group, "unique": found.unique}
        request = plan.build_request([text], keywords)
        limit = request.timeout_seconds if found.timeout_seconds is None else found.timeout_seconds
        retry = _retry_of(found, self._live.current) or request.retry
        request = replace(
            request, origin=Origin.RERUN, timeout_seconds=limit, retry=retry, rerun_of=metadata_id
        )
        return (await self._insert(plan.train, request, None, notify=True))[0]

    def _plan(self, train: Train[Any, Any] | str, *, has_code: bool = True) -> EnqueuePlan:
        """What is constant for the jobs of this train, computed once for each version of the settings."""
        if not isinstance(cast("Any", train), str | Train):
            raise InvalidArgument("train", "a train of this app, or the name of one", train)
        plan = self._plans.get(train) if has_code else None
        if plan is None or plan.settings is not self._live.current:
            plan = self._build_plan(train, has_code=has_code)
            if has_code:
                self._plans[train] = plan
        return plan

    def _build_plan(self, given: Train[Any, Any] | str, *, has_code: bool) -> EnqueuePlan:
        settings = self._live.current
        if not isinstance(given, str):
            codec = self._parameters.codec_of_registered(given)
            return EnqueuePlan(given, codec.encode, settings, codec.encode_all)
        if not has_code:
            return EnqueuePlan(_placeholder_train(given), _encode_unchecked, settings)
        train = self._trains.get(given)
        codec = self._parameters.input_codec(train)

        def encode(value: Any) -> str:
            return codec.encode(decode_plain_input(value, train, codec, settings))

        return EnqueuePlan(train, encode, settings)

    def _trace(self, request: EnqueueRequest) -> AbstractContextManager[EnqueueRequest]:
        telemetry = self._telemetry.now
        return nullcontext(request) if telemetry is None else telemetry.trace_enqueue(request)

    async def _insert(
        self,
        train: Train[Any, Any],
        request: EnqueueRequest,
        caller_connection: SessionOrConnection | None,
        *,
        notify: bool,
    ) -> list[QueuedEntry]:
        with self._trace(request) as traced:
            if self._hooks.shared_queue_hooks or train.options.on_queue:
                for result in self._call_queue_hooks(train, traced):
                    if inspect.isawaitable(result):
                        await result
            if not traced.inputs:
                return []
            if caller_connection is not None:
                return await self._insert_in(caller_connection, traced, notify=notify)
            store = await self._store.open()
            try:
                if _is_one_statement(traced):
                    plain = PlainEnqueue(traced)
                    if (inserted := await self._combiner(store).insert(plain)) is not None:
                        return plain.build_entries(inserted, self._entry_waiter)
                return await store.call(_enqueue, store, traced, self._entry_waiter, None, self._code)
            except StoreUnavailable as error:
                if error.may_be_committed:
                    raise outcome_error(error, traced) from error
                raise

    def _combiner(self, store: Store) -> EnqueueCombiner:
        """What combines the calls of this event loop."""
        loop = asyncio.get_running_loop()
        combiner = self._combiners.get(loop)
        if combiner is None or combiner.store is not store:
            combiner = self._combiners[loop] = EnqueueCombiner(store)
        return combiner

    async def _insert_in(
        self, caller_connection: SessionOrConnection, request: EnqueueRequest, *, notify: bool
    ) -> list[QueuedEntry]:
        run, address = callers.run_in_transaction, self._store.display_address
        is_new = await run(caller_connection, address, _has_new_group, request)
        group = await asyncio.to_thread(self._insert_group, request) if is_new else None
        how = self._entry_waiter, group, self._code, notify
        entries = await run(caller_connection, address, _enqueue_for_caller, self._store, request, *how)
        callers.after_commit(caller_connection, self._wake)
        return entries

    def _insert_blocking(
        self,
        train: Train[Any, Any],
        request: EnqueueRequest,
        caller_connection: SessionOrConnection | None,
        *,
        notify: bool,
    ) -> list[QueuedEntry]:
        if callers.is_async(caller_connection):
            raise DefinitionError(
                f"app.sync cannot use {type(caller_connection).__name__}; use `await app.queue(…)`"
            )
        with self._trace(request) as traced:
            for result in self._call_queue_hooks(train, traced):
                if inspect.iscoroutine(result):
                    result.close()
                    raise DefinitionError(
                        f"train {train.name!r}: on_queue is async, app.sync is blocking; "
                        "use `await app.queue(…)`"
                    )
            if not traced.inputs:
                return []
            if caller_connection is not None:
                return self._insert_in_blocking(caller_connection, traced, notify=notify)
            store = self._store.open_blocking()
            try:
                if _is_one_statement(traced):
                    plain = PlainEnqueue(traced)
                    if rows := store.run_alone(plain.statement(store.dialect_name), Topic.WORK_QUEUE):
                        return plain.build_entries(parse_inserted(rows), self._entry_waiter)
                return store.run(_enqueue, store, traced, self._entry_waiter, None, self._code)
            except StoreUnavailable as error:
                if error.may_be_committed:
                    raise outcome_error(error, traced) from error
                raise

    def _insert_in_blocking(
        self, caller_connection: SessionOrConnection, request: EnqueueRequest, *, notify: bool
    ) -> list[QueuedEntry]:
        run, address = callers.run_in_transaction_blocking, self._store.display_address
        group = (
            self._insert_group(request) if run(caller_connection, address, _has_new_group, request) else None
        )
        how = self._entry_waiter, group, self._code, notify
        entries = run(caller_connection, address, _enqueue_for_caller, self._store, request, *how)
        callers.after_commit(caller_connection, self._wake)
        return entries

    def _call_queue_hooks(self, train: Train[Any, Any], request: EnqueueRequest) -> Iterator[Any]:
        """Call each `on_queue` hook for each new entry, with the record its run would have.

        A hook cannot change the entry; if it raises, no entry is written.
        """
        hooks = self._hooks.queue_hooks(train)
        if not hooks:
            return
        for external_id, text in request.inputs.items():
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

    def _insert_group(self, request: EnqueueRequest) -> ManifestGroup:
        """Insert the group in a separate, short transaction: the caller's may stay open for long."""
        name = str(request.group)

        def insert(connection: Connection) -> ManifestGroup:
            now = store.now(connection)
            return groups.get_or_create(connection, [name], now=now, code=self._code, ad_hoc=True)[name]

        with self._store.store_as_is() as store:
            return store.run(insert)


def _has_new_group(connection: Connection, request: EnqueueRequest) -> bool:
    return request.group is not None and groups.must_create_first(connection, request.group)


def refuse_unique(keywords: ManyKeywords) -> QueueKeywords:
    """The options of `queue_many`. It accepts no unique key, because a key identifies one entry."""
    keyed = cast("QueueKeywords", keywords)
    if keyed.get("unique") is not None:
        raise DefinitionError(
            "queue_many does not accept unique; use queue() with a unique key for each entry"
        )
    return keyed


def _caller_connection(keywords: QueueKeywords) -> SessionOrConnection | None:
    connection = keywords.get("connection")
    if connection is None:
        return None
    check_may_open()
    return callers.resolve_connection(connection)


def _encode_unchecked(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"the input cannot be encoded as JSON: {error}") from None


@junction
def _placeholder(value: Any) -> Any:
    """Stand in for the code of a train of which only the name is known."""
    return value


def _placeholder_train(name: str) -> Train[Any, Any]:
    """A train without its code: the workers have it, and validate the input."""
    check_not_reserved(name)
    return define_train(name, _placeholder)


def _retry_of(rerun: RerunRequest, settings: Settings) -> str | None:
    """The retry policy of the run; `max_attempts` of its manifest overrides the policy's."""
    if rerun.max_retries is None:
        return rerun.retry
    policy = RetryPolicy.from_json(rerun.retry) or default_policy(settings)
    return replace(policy, max_attempts=rerun.max_retries).to_json()


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


def _is_one_statement(request: EnqueueRequest) -> bool:
    """Whether one statement is all there is to do: an operator's request is also written to the audit log."""
    return is_plain(request) and (load_acting() is None or actor_context() is None)


def _enqueue(
    connection: Connection,
    store: Store | LazyStore,
    request: EnqueueRequest,
    wait_function: WaitFunction,
    group: ManifestGroup | None = None,
    code: GroupCode = NO_CODE,
) -> list[QueuedEntry]:
    """Write entries, and an audit entry if an operator enqueues them."""
    now = store.now(connection)
    entries = enqueue(connection, request, now=now, wait_function=wait_function, group=group, code=code)
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


def _enqueue_for_caller(
    connection: Connection,
    store: LazyStore,
    request: EnqueueRequest,
    wait_function: WaitFunction,
    group: ManifestGroup | None,
    code: GroupCode,
    notify: bool,  # noqa: FBT001
) -> list[QueuedEntry]:
    """Write entries in the caller's transaction; PostgreSQL cannot prepare one that has notified."""
    with nullcontext() if notify and not callers.is_two_phase(connection) else silence():
        return _enqueue(connection, store, request, wait_function, group, code)


async def enqueue_without_code(
    context: AppContext, train: str, value: Any, keywords: QueueKeywords
) -> QueuedEntry:
    """Enqueue a train by name, with plain data that only the workers can validate.

    They publish which fields are no secrets: values in all others are encrypted here. An input of a train
    that no live process knows is refused.
    """
    check_not_reserved(train)
    store = await context.store.open()
    published = await store.ask(_load_plain_fields, store, context.live)
    try:
        plain = merge_fields(train, published)
    except LookupError:
        refuse_unknown(train, value)
    else:
        value = value if plain is None else seal_fields(value, plain, train)
    return (await Enqueuer(context).enqueue(train, [value], keywords, has_code=False))[0]


def _load_plain_fields(connection: Connection, store: Store, live: LiveSettings) -> list[dict[str, Any]]:
    alive_since = store.now(connection) - live.current.worker_lost_after
    return workers.load_plain_fields(connection, alive_since=alive_since)


async def run_by_name(context: AppContext, name: str, value: Any) -> Metadata:
    """Run it now, in this process. Errors of the run are in its record; only errors before it are raised."""
    train, decoded = context.parameters.resolve(name, value)
    store = await context.store.open()
    run = RecordedRun(context, store, train)
    try:
        await run.run(decoded)
    except Exception:
        if run.metadata_id is None:
            raise
    found = None if run.metadata_id is None else await store.ask(metadata.get, run.metadata_id)
    if found is None:
        raise NotFound(f"train {name!r}: the record of this run was already deleted")
    return found
