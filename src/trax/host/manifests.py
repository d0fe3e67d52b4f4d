"""`app.manifests`: which train runs when, at run time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from trax.admin import runtime, triggers
from trax.admin.seeding import seed, without_operators
from trax.admin.triggers import refusal_of_retired, unknown
from trax.events import Topic
from trax.host.acting import note
from trax.host.checks import NAME, PAGE, check_names
from trax.host.entry import QueuedEntry
from trax.host.words import checked_word
from trax.records.external_id import new_external_id
from trax.records.filters import ManifestFilter
from trax.records.states import ScheduleType
from trax.schedule.builder import Declarations
from trax.schedule.requirement import DURATION
from trax.store import dialect, manifest_pages, manifests, metadata_sweeps
from trax.store.announcing import announce

if TYPE_CHECKING:
    from typing import Unpack

    from trax.host.parts import Parts
    from trax.records import Manifest, WorkQueueEntry
    from trax.records.count import Count
    from trax.records.page import Page
    from trax.schedule.batch import ConfigureEach, Items
    from trax.schedule.declaration import Timetable
    from trax.schedule.occasion import When
    from trax.schedule.options import ScheduleKeywords
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.train import Train

In = TypeVar("In")

NOUN: Final = "manifest"


class ManifestKeywords(TypedDict, total=False):
    """Which manifests: what is left out may be anything.

    `text` stands somewhere in the external id; `depends_on` is the one they wait for. `retired` ones are left
    out, unless it is True (only those) or None (all).
    """

    group: str | None
    train: str | None
    enabled: bool | None
    schedule_type: ScheduleType | str | None
    depends_on: str | None
    text: str | None
    retired: bool | None


class Manifests:
    """The same verbs as at declaration, each one transaction; and what an operator does."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._parameters = parts.parameters
        self._live = parts.live
        self._declared = parts.declarations
        self._waiting = parts.waiting
        self._app = parts.name

    async def schedule(
        self, train: Train[In, Any], external_id: str, value: In, when: When, **how: Unpack[ScheduleKeywords]
    ) -> Manifest:
        declarations = self._declarations()
        declarations.schedule(train, external_id, value, when, **how)
        return (await self._write(declarations))[0]

    async def schedule_many(
        self,
        train: Train[In, Any],
        name: str | None,
        items: Items[In],
        when: When,
        *,
        configure_each: ConfigureEach[In] | None = None,
        **how: Unpack[ScheduleKeywords],
    ) -> list[Manifest]:
        """All of them or none. What an earlier call put into this batch, and this one not, is retired."""
        declarations = self._declarations()
        declarations.schedule_many(train, name, items, when, configure_each=configure_each, **how)
        return await self._write(declarations, batch=name)

    async def schedule_once(
        self,
        train: Train[In, Any],
        external_id: str | None,
        value: In,
        delay: timedelta = timedelta(),
        **how: Unpack[ScheduleKeywords],
    ) -> Manifest:
        """A single run, so long from now. Without an id it gets one of its own."""
        name = f"once-{new_external_id()}" if external_id is None else external_id
        declarations = self._declarations()
        declarations.schedule_once(train, name, value, delay, **how)
        return (await self._write(declarations))[0]

    async def schedule_dependent(
        self,
        train: Train[In, Any],
        external_id: str,
        value: In,
        depends_on: str,
        **how: Unpack[ScheduleKeywords],
    ) -> Manifest:
        declarations = self._declarations()
        declarations.after(depends_on).then_include(train, external_id, value, **how)
        return (await self._write(declarations))[0]

    async def enable(self, external_id: str) -> None:
        await self._switch(external_id, enabled=True)

    async def disable(self, external_id: str) -> None:
        """No new entries are written; those in the queue already are not withdrawn."""
        await self._switch(external_id, enabled=False)

    async def trigger(self, external_id: str, *, delay: timedelta | None = None) -> QueuedEntry:
        """Start it now, or after a delay: an extra run, whatever the schedule says."""
        _check_trigger(external_id, delay)
        store = await self._store.opened()
        entry = await store.call(_trigger, store, external_id, delay)
        return QueuedEntry(**entry.as_fields()).awaited_by(self._waiting)

    def trigger_blocking(self, external_id: str, *, delay: timedelta | None = None) -> QueuedEntry:
        """The same from code without an event loop: `app.sync.trigger`."""
        _check_trigger(external_id, delay)
        store = self._store.opened_blocking()
        entry = store.run(_trigger, store, external_id, delay)
        return QueuedEntry(**entry.as_fields()).awaited_by(self._waiting)

    async def cancel(self, external_id: str) -> int:
        """Ask its runs in progress to stop; returns how many."""
        NAME("external_id", external_id)
        store = await self._store.opened()
        return await store.call(_cancel, store, external_id)

    async def delete(self, external_id: str) -> None:
        """Retire it: it stops firing, its entries are withdrawn, its history and dead letters stay.

        Scheduled again under the same id, it goes on. What code declares comes back with the next start.
        """
        NAME("external_id", external_id)
        store = await self._store.opened()
        await store.call(_delete, store, external_id)

    async def reset_operator_overrides(self) -> None:
        """Undo what operators have switched or limited: what code does not say goes back to its default."""
        store = await self._store.opened()
        timetable = without_operators(self._declared.checked())
        await store.call(_seed, store, timetable, self._live.now, self._app)

    async def get(self, external_id: str) -> Manifest:
        NAME("external_id", external_id)
        store = await self._store.opened()
        found = await store.ask(manifests.get, external_id)
        if found is None:
            raise unknown(external_id)
        return found

    async def list(
        self,
        *,
        group: str | None = None,
        train: str | None = None,
        enabled: bool | None = None,
        schedule_type: ScheduleType | str | None = None,
        retired: bool | None = False,
        after: str | None = None,
        limit: int = 50,
    ) -> list[Manifest]:
        """In the order of their external ids. To read on, pass the last one's as `after`.

        Retired ones are left out, unless `retired` is True (only those) or None (all).
        """
        check_names(group=group, train=train, after=after)
        kind, size = checked_word(ScheduleType, schedule_type), PAGE("limit", limit)
        wanted: dict[str, Any] = {"group": group, "train": train, "enabled": enabled, "schedule_type": kind}
        wanted["retired"] = retired
        store = await self._store.opened()
        return await store.ask(manifests.listed, after=after, limit=size, **wanted)

    async def page(
        self,
        *,
        before: str | None = None,
        after: str | None = None,
        limit: int = 50,
        brief: bool = False,
        **wanted: Unpack[ManifestKeywords],
    ) -> Page[Manifest]:
        """The same as `list`, with the way back (`older`, for `before`) and on (`newer`, for `after`).

        With `brief` inputs are left out, as a list shows them.
        """
        check_names(before=before, after=after)
        found, size = _filter(wanted), PAGE("limit", limit)
        store = await self._store.opened()
        return await store.ask(
            manifest_pages.page, found, before=before, after=after, limit=size, brief=brief
        )

    async def count(self, *, quick: bool = False, **wanted: Unpack[ManifestKeywords]) -> Count:
        """How many there are: exact up to ten thousand, beyond that about how many.

        A filter that no index answers, such as a train, reads all there is. A `quick` count looks at a
        bounded number of rows as a page does, and may be an estimate below ten thousand.
        """
        found = _filter(wanted)
        store = await self._store.opened()
        return await store.ask(manifest_pages.count, found, quick=quick)

    def _declarations(self) -> Declarations:
        return Declarations(self._parameters.measured)

    async def _write(self, declarations: Declarations, batch: str | None = None) -> list[Manifest]:
        timetable = declarations.checked()
        store = await self._store.opened()
        return await store.call(_schedule, store, timetable, self._live.now, batch, self._app)

    async def _switch(self, external_id: str, *, enabled: bool) -> None:
        NAME("external_id", external_id)
        store = await self._store.opened()
        await store.call(_set_enabled, store, external_id, enabled=enabled)


def _filter(wanted: ManifestKeywords) -> ManifestFilter:
    check_names(**{name: wanted.get(name) for name in ("group", "train", "depends_on", "text")})
    kind = checked_word(ScheduleType, wanted.get("schedule_type"))
    said: dict[str, Any] = {**wanted, "schedule_type": kind}
    return ManifestFilter(**said)


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
    app: str,
) -> list[Manifest]:
    written = runtime.schedule(connection, store, timetable, settings, batch, app)
    names = [manifest.external_id for manifest in written]
    note(connection, "manifests.schedule", NOUN, names, now=store.now(connection))
    return written


def _trigger(
    connection: Connection, store: Store, external_id: str, delay: timedelta | None
) -> WorkQueueEntry:
    now = store.now(connection)
    entry = triggers.trigger(connection, external_id, delay=delay, now=now)
    assert entry is not None  # noqa: S101 - it was written in this transaction
    note(connection, "manifests.trigger", NOUN, [external_id], now=now, after={"entry_id": entry.id})
    return entry


def _seed(connection: Connection, store: Store, timetable: Timetable, settings: Settings, app: str) -> None:
    dialect.take_leader_lock(connection)
    now = store.now(connection)
    seed(connection, timetable, settings, now=now, app=app)
    announce(connection, Topic.MANIFEST)
    names = [each.external_id for each in timetable.manifests]
    note(connection, "manifests.reset_operator_overrides", NOUN, names, now=now)


def _cancel(connection: Connection, store: Store, external_id: str) -> int:
    if not manifests.ids_of(connection, [external_id]):
        raise unknown(external_id)
    runs = manifests.running(connection, external_id=external_id)
    asked = metadata_sweeps.request_cancel(connection, runs)
    after = {"asked_to_stop": len(asked)}
    note(connection, "manifests.cancel", NOUN, [external_id], now=store.now(connection), after=after)
    return len(asked)


def _delete(connection: Connection, store: Store, external_id: str) -> None:
    manifest, now = manifests.get(connection, external_id), store.now(connection)
    runtime.delete(connection, external_id, now=now)
    before = _summary(manifest)
    note(connection, "manifests.delete", NOUN, [external_id], now=now, before=before)


def _set_enabled(connection: Connection, store: Store, external_id: str, *, enabled: bool) -> None:
    now = store.now(connection)
    before = manifests.get(connection, external_id)
    if before is None:
        raise unknown(external_id)
    if manifests.set_enabled(connection, external_id, enabled=enabled, now=now) is None:
        raise refusal_of_retired(external_id, before.retired_at or now)
    announce(connection, Topic.MANIFEST)
    verb, was = "enable" if enabled else "disable", {"enabled": before.enabled}
    note(
        connection, f"manifests.{verb}", NOUN, [external_id], now=now, before=was, after={"enabled": enabled}
    )


def _summary(manifest: Manifest | None) -> dict[str, Any] | None:
    """What is worth remembering of a manifest that is retired; its input may be anybody's secret."""
    told = ("train", "group", "schedule", "schedule_type", "enabled", "depends_on")
    return {name: getattr(manifest, name) for name in told} if manifest else None
