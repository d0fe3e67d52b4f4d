"""`app.manifests`: schedule, trigger, enable, disable, cancel, delete and list manifests at run time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trax.app.lists import RecordLists
from trax.engine import schedule, trigger
from trax.engine.actor import record_audit
from trax.engine.seed import seed, with_code_defaults
from trax.engine.seed_groups import code_of
from trax.engine.trigger import get_manifest, manifest_not_found, manifest_retired_conflict
from trax.events import Topic
from trax.records.nouns import MANIFESTS
from trax.records.work_queue_entry import new_external_id
from trax.schedule.builder import Declarations
from trax.schedule.validate import DURATION, NAME
from trax.store import dialect
from trax.store.announce import announce
from trax.store.manifests import manifest_due, manifest_rows
from trax.store.runs import rescue
from trax.worker.entry import QueuedEntry

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    from trax.records import Manifest, WorkQueueEntry
    from trax.records.listing import Count, RecordPage
    from trax.records.nouns import ManifestFilter, ManifestKeywords
    from trax.records.schedule import Timing
    from trax.schedule.declaration import ScheduleKeywords, Timetable, When
    from trax.schedule.declare import ConfigureEach, Items
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.store.groups import GroupCode
    from trax.train import Train
    from trax.worker.app_context import AppContext


In = TypeVar("In")

NOUN: Final = "manifest"


class Manifests:
    """Declare manifests at run time, and operate them. Each call is one transaction."""

    def __init__(self, context: AppContext) -> None:
        self._store = context.store
        self._lists = RecordLists(context.store, MANIFESTS, manifest_rows.MANIFESTS)
        self._parameters = context.parameters
        self._live = context.live
        self._declared = context.declarations
        self._waiting = context.entry_waiter
        self._app = context.name

    async def schedule(
        self,
        train: Train[In, Any] | str,
        external_id: str,
        input: In,  # noqa: A002 - the public name
        when: When,
        **options: Unpack[ScheduleKeywords],
    ) -> Manifest:
        declarations = self._new_declarations()
        declarations.schedule(train, external_id, input, when, **options)
        return (await self._write(declarations))[0]

    async def schedule_many(
        self,
        train: Train[In, Any] | str,
        name: str | None,
        items: Items[In],
        when: When,
        *,
        configure_each: ConfigureEach[In] | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> list[Manifest]:
        """Schedule all or none. Manifests of this batch that this call no longer names are retired."""
        declarations = self._new_declarations()
        declarations.schedule_many(train, name, items, when, configure_each=configure_each, **options)
        return await self._write(declarations, batch=name)

    async def schedule_once(
        self,
        train: Train[In, Any] | str,
        external_id: str | None,
        input: In,  # noqa: A002 - the public name
        delay: timedelta = timedelta(),
        **options: Unpack[ScheduleKeywords],
    ) -> Manifest:
        """Schedule a single run after `delay`. Without an external id, one is generated."""
        name = f"once-{new_external_id()}" if external_id is None else external_id
        declarations = self._new_declarations()
        declarations.schedule_once(train, name, input, delay, **options)
        return (await self._write(declarations))[0]

    async def schedule_dependent(
        self,
        train: Train[In, Any] | str,
        external_id: str,
        input: In,  # noqa: A002 - the public name
        depends_on: str,
        **options: Unpack[ScheduleKeywords],
    ) -> Manifest:
        declarations = self._new_declarations()
        declarations.after(depends_on).then_include(train, external_id, input, **options)
        return (await self._write(declarations))[0]

    async def enable(self, external_id: str) -> None:
        await self._switch(external_id, enabled=True)

    async def disable(self, external_id: str) -> None:
        """Stop writing new entries. Entries already queued are not withdrawn."""
        await self._switch(external_id, enabled=False)

    async def trigger(self, external_id: str, *, delay: timedelta | None = None) -> QueuedEntry:
        """Enqueue an extra run, now or after a delay, independent of the schedule."""
        _check_trigger(external_id, delay)
        store = await self._store.open()
        entry = await store.call(_trigger, store, external_id, delay)
        return QueuedEntry(**entry.as_fields()).with_wait_function(self._waiting)

    def trigger_blocking(self, external_id: str, *, delay: timedelta | None = None) -> QueuedEntry:
        """`trigger` for blocking code: `app.sync.trigger`."""
        _check_trigger(external_id, delay)
        store = self._store.open_blocking()
        entry = store.run(_trigger, store, external_id, delay)
        return QueuedEntry(**entry.as_fields()).with_wait_function(self._waiting)

    async def cancel(self, external_id: str) -> list[int]:
        """Request cancellation of the manifest's runs in progress; return their ids."""
        NAME("external_id", external_id)
        store = await self._store.open()
        return await store.call(_cancel, store, external_id)

    async def delete(self, external_id: str) -> None:
        """Retire the manifest: it stops firing, its entries are withdrawn, its history and dead letters stay.

        Scheduling the same external id again reactivates it; so does the next start if code declares it.
        """
        NAME("external_id", external_id)
        store = await self._store.open()
        await store.call(_delete, store, external_id)

    async def reset_operator_overrides(self) -> None:
        """Undo what operators enabled, disabled or limited: fields not set in code get their default."""
        store = await self._store.open()
        timetable = with_code_defaults(self._declared.timetable())
        await store.call(_seed, store, timetable, self._live.current, self._app)

    async def get(self, external_id: str) -> Manifest:
        NAME("external_id", external_id)
        store = await self._store.open()
        return await store.ask(get_manifest, external_id)

    async def list(self, **keywords: Unpack[ManifestKeywords]) -> list[Manifest]:
        """List manifests by external id. For the next page, pass the last external id as `after`.

        Retired ones are omitted, unless `retired` is True (only those) or None (all). With `brief`, inputs
        are omitted.
        """
        return await self._lists.load_list(keywords)

    async def page(self, **keywords: Unpack[ManifestKeywords]) -> RecordPage[Manifest]:
        """Like `list`, with cursors: `older` is for `before`, `newer` for `after`.

        With `brief`, inputs are omitted.
        """
        return await self._lists.page(keywords)

    async def count(self, *, quick: bool = False, **filters: Unpack[ManifestFilter]) -> Count:
        """Count manifests: exact up to ten thousand, an estimate beyond.

        A filter without an index, such as a train, scans the whole table. A `quick` count reads a bounded
        number of rows, as a page does, and may be an estimate below ten thousand.
        """
        return await self._lists.count(filters, quick=quick)

    def _new_declarations(self) -> Declarations:
        return Declarations(self._parameters.input_writer, self._parameters.find_train)

    async def _write(self, declarations: Declarations, batch: str | None = None) -> list[Manifest]:
        timetable = declarations.timetable()
        store = await self._store.open()
        code = code_of(self._app, self._declared.find_group)
        return await store.call(_schedule, store, timetable, self._live.current, batch, code)

    async def _switch(self, external_id: str, *, enabled: bool) -> None:
        NAME("external_id", external_id)
        store = await self._store.open()
        await store.call(_set_enabled, store, external_id, enabled=enabled)


def _check_trigger(external_id: str, delay: timedelta | None) -> None:
    NAME("external_id", external_id)
    if delay is not None:
        DURATION("delay", delay)


def _schedule(
    connection: Connection,
    store: Store,
    timetable: Timetable,
    settings: Settings,
    batch: str | None,
    code: GroupCode,
) -> list[Manifest]:
    written = schedule.schedule(connection, store, timetable, settings, batch, code.app, code)
    names = [manifest.external_id for manifest in written]
    record_audit(connection, "manifests.schedule", NOUN, names, now=store.now(connection))
    return written


def _trigger(
    connection: Connection, store: Store, external_id: str, delay: timedelta | None
) -> WorkQueueEntry:
    now = store.now(connection)
    entry = trigger.trigger(connection, external_id, delay=delay, now=now)
    assert entry is not None  # noqa: S101 - it was written in this transaction
    record_audit(connection, "manifests.trigger", NOUN, [external_id], now=now, after={"entry_id": entry.id})
    return entry


def _seed(connection: Connection, store: Store, timetable: Timetable, settings: Settings, app: str) -> None:
    dialect.take_leader_lock(connection)
    now = store.now(connection)
    seed(connection, timetable, settings, now=now, app=app, resets=True)
    announce(connection, Topic.MANIFEST)
    names = [each.external_id for each in timetable.manifests]
    record_audit(connection, "manifests.reset_operator_overrides", NOUN, names, now=now)


def _cancel(connection: Connection, store: Store, external_id: str) -> list[int]:
    if not manifest_rows.load_ids(connection, [external_id]):
        raise manifest_not_found(connection, external_id)
    runs = manifest_rows.load_running_ids(connection, external_id=external_id)
    run_ids = rescue.request_cancel(connection, runs)
    after = {"stop_requested": len(run_ids)}
    record_audit(connection, "manifests.cancel", NOUN, [external_id], now=store.now(connection), after=after)
    return sorted(run_ids)


def _delete(connection: Connection, store: Store, external_id: str) -> None:
    manifest, now = manifest_rows.get(connection, external_id), store.now(connection)
    schedule.delete(connection, external_id, now=now)
    before = _summary(manifest)
    record_audit(connection, "manifests.delete", NOUN, [external_id], now=now, before=before)


def _set_enabled(connection: Connection, store: Store, external_id: str, *, enabled: bool) -> None:
    now = store.now(connection)
    before = get_manifest(connection, external_id)
    if manifest_rows.set_enabled(connection, external_id, enabled=enabled, now=now) is None:
        raise manifest_retired_conflict(external_id, before.retired_at or now)
    announce(connection, Topic.MANIFEST)
    verb, was = "enable" if enabled else "disable", {"enabled": before.enabled}
    record_audit(
        connection, f"manifests.{verb}", NOUN, [external_id], now=now, before=was, after={"enabled": enabled}
    )


def _summary(manifest: Manifest | None) -> dict[str, Any] | None:
    """The fields to audit for a retired manifest. Not its input, which may contain secrets."""
    fields = ("train", "group", "schedule", "schedule_type", "enabled", "depends_on")
    return {name: getattr(manifest, name) for name in fields} if manifest else None


async def timing_of(context: AppContext, manifest: Manifest) -> tuple[Timing, datetime]:
    """The timing, and the database time it was read at."""
    store = await context.store.open()
    return await store.ask(_read, store, context, manifest)


def _read(
    connection: Connection, store: Store, context: AppContext, manifest: Manifest
) -> tuple[Timing, datetime]:
    threshold = context.settings.default_misfire_threshold
    found = manifest_due.load_states_unlocked(connection, [manifest.id], default_threshold=threshold)
    if not found:
        raise manifest_not_found(connection, manifest.external_id)
    return found[0].timing, store.now(connection)
