"""`app.settings`: how this installation behaves, edited while it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from trax.errors import Conflict
from trax.events import Topic
from trax.host.acting import note
from trax.host.live_settings import check_known
from trax.store import dialect, settings
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from trax.host.live_settings import LiveSettings
    from trax.host.parts import Parts
    from trax.settings import SettingOrigin, Settings
    from trax.store import Connection, Store
    from trax.store.audit import Undoable

    T = TypeVar("T")
    Edit = Callable[[Connection, Store, LiveSettings, T], dict[str, str]]
    """Writes what is wanted, and gives the rows there are then."""


NOUN: Final = "setting"


class AppSettings:
    """What operators edit: seen by every server within one cycle, and kept over restarts."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._live = parts.live

    @overload
    async def get(self) -> Settings: ...
    @overload
    async def get(self, name: str) -> Any: ...
    async def get(self, name: str | None = None) -> Any:
        """All settings now in force, or the value of one."""
        if name is not None:
            check_known(name)
        store = await self._store.opened()
        now = await store.ask(self._live.refresh)
        return now if name is None else getattr(now, name)

    async def update(self, /, **changes: Any) -> Settings:
        """Change what is given, all of it or nothing; what is left out stays, and None means no limit."""
        return await self._edited(await self._store.opened(), _update, changes)

    async def reset(self, *names: str) -> Settings:
        """Undo operators' edits of these, or all edits: what code and environment say counts again."""
        return await self._edited(await self._store.opened(), _reset, names)

    async def origins(self) -> dict[str, SettingOrigin]:
        """Who says what each setting is: "default", "code", "environment" or "operator"."""
        store = await self._store.opened()
        await store.ask(self._live.refresh)
        return self._live.origins()

    async def _edited(self, store: Store, edit: Edit[T], what: T) -> Settings:
        return self._live.accept(await store.call(edit, store, self._live, what))


def restore(connection: Connection, store: Store, live: LiveSettings, found: Undoable, *, force: bool) -> int:
    """Put back the rows that a change replaced, if they are as it left them; gives the new audit entry.

    `restores` and `expects` have the text of each row, or None where there was none.
    """
    dialect.take_settings_lock(connection)
    rows = settings.stored(connection)
    changed = [name for name, text in found.expects.items() if rows.get(name) != text]
    if changed and not force:
        raise Conflict(f"edited again since: {', '.join(changed)}; say force=True to undo it all the same")
    given = {name: json.loads(text) for name, text in found.restores.items() if text is not None}
    gone = [name for name in found.restores if name not in given and name in rows]
    remaining = live.without(rows, gone) if gone else rows
    wanted = remaining | (live.changed(remaining, given) if given else {})
    made = _write(connection, store, live, rows, wanted, names=found.restores, undoes=found.entry.id)
    return made or 0


def _update(
    connection: Connection, store: Store, live: LiveSettings, changes: dict[str, Any]
) -> dict[str, str]:
    dialect.take_settings_lock(connection)
    rows = settings.stored(connection)
    written = live.changed(rows, changes)
    _write(connection, store, live, rows, rows | written, names=written)
    return rows | written


def _reset(
    connection: Connection, store: Store, live: LiveSettings, names: tuple[str, ...]
) -> dict[str, str]:
    dialect.take_settings_lock(connection)
    rows = settings.stored(connection)
    remaining = live.without(rows, names)
    _write(connection, store, live, rows, remaining, names=rows.keys() - remaining.keys(), verb="reset")
    return remaining


def _write(
    connection: Connection,
    store: Store,
    live: LiveSettings,
    rows: dict[str, str],
    wanted: dict[str, str],
    *,
    names: Collection[str],
    verb: str = "update",
    undoes: int | None = None,
) -> int | None:
    """Make the rows what is wanted, and note which of these names that changed from what to what."""
    now = store.now(connection)
    settings.write(connection, {name: text for name, text in wanted.items() if name in names}, now=now)
    settings.forget(connection, rows.keys() - wanted.keys())
    announce(connection, Topic.SETTING)
    ordered = sorted(names)
    return note(
        connection,
        f"settings.{verb}",
        NOUN,
        ordered,
        now=now,
        before=live.spelled(rows, ordered),
        after=live.spelled(wanted, ordered),
        restores={name: rows.get(name) for name in ordered},
        expects={name: wanted.get(name) for name in ordered},
        undoes=undoes,
    )
