"""`app.settings`: read and change the settings of a running installation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from trax.engine.actor import PROGRAM, record_audit
from trax.engine.live_settings import RECORDED, check_known
from trax.errors import Conflict, DefinitionError
from trax.events import Topic
from trax.settings import Settings
from trax.store import dialect, settings
from trax.store.announce import announce

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Unpack

    from trax.engine.live_settings import LiveSettings
    from trax.settings import SettingKeywords, SettingOrigin
    from trax.store import Connection, Store
    from trax.store.audit import UndoableEntry
    from trax.worker.app_context import AppContext

    T = TypeVar("T")
    Edit = Callable[[Connection, Store, LiveSettings, T], dict[str, str]]
    """Writes a change and returns the rows after it."""


NOUN: Final = "setting"


class AppSettings:
    """Settings changed by operators: every server applies them within one cycle; restarts keep them."""

    def __init__(self, context: AppContext) -> None:
        self._store = context.store
        self._live = context.live

    if not TYPE_CHECKING:  # a type checker reports both by itself

        def __setattr__(self, name: str, value: Any) -> None:
            if name.startswith("_"):
                object.__setattr__(self, name, value)
                return
            check_known(name)
            raise assignment_error(name)

        def __getattr__(self, name: str) -> Any:
            hint = f'; use `await app.settings.get("{name}")`' if name in Settings.model_fields else ""
            raise AttributeError(f"app.settings has no attribute {name!r}{hint}", name=name, obj=self)

    @overload
    async def get(self) -> Settings: ...
    @overload
    async def get(self, name: str) -> Any: ...
    async def get(self, name: str | None = None) -> Any:
        """All current settings, or the value of one."""
        if name is not None:
            check_known(name)
        store = await self._store.open()
        now = await store.ask(self._live.refresh)
        return now if name is None else getattr(now, name)

    async def update(self, /, **changes: Unpack[SettingKeywords]) -> Settings:
        """Change the given settings, all or none. Omitted ones stay; None means no limit."""
        values: dict[str, Any] = {**changes}
        return await self._edit(await self._store.open(), _update, values)

    async def reset(self, *names: str) -> Settings:
        """Remove operators' changes of these settings, or of all: code and environment apply again."""
        return await self._edit(await self._store.open(), _reset, names)

    async def origins(self) -> dict[str, SettingOrigin]:
        """The origin of each setting: "default", "code", "environment" or "operator"."""
        store = await self._store.open()
        await store.ask(self._live.refresh)
        return self._live.origins()

    async def _edit(self, store: Store, edit: Edit[T], changes: T) -> Settings:
        return self._live.accept(await store.call(edit, store, self._live, changes))


def assignment_error(name: str) -> DefinitionError:
    return DefinitionError(
        f"setting {name!r} cannot be assigned; use Trax({name}=…) in code, or, for all running servers, "
        f"`await app.settings.update({name}=…)`"
    )


def restore(
    connection: Connection, store: Store, live: LiveSettings, undoable: UndoableEntry, *, force: bool
) -> int:
    """Undo a change of settings if they have not changed since; returns the id of the new audit entry.

    `restores` and `expects` have the text of each row, or None if there was no row.
    """
    dialect.take_settings_lock(connection)
    rows = settings.load_edited(connection)
    changed = [name for name, text in undoable.expects.items() if rows.get(name) != text]
    if changed and not force:
        names = ", ".join(changed)
        raise Conflict(f"conflict: settings have changed since: {names}; pass force=True to undo anyway")
    values = {name: json.loads(text) for name, text in undoable.restores.items() if text is not None}
    removed = [name for name in undoable.restores if name not in values and name in rows]
    remaining = live.rows_without(rows, removed) if removed else rows
    wanted = remaining | (live.build_rows(remaining, values) if values else {})
    audit_id = _write(
        connection, store, live, rows, wanted, names=undoable.restores, undoes=undoable.entry.id
    )
    return audit_id or 0


def _update(
    connection: Connection, store: Store, live: LiveSettings, changes: dict[str, Any]
) -> dict[str, str]:
    dialect.take_settings_lock(connection)
    rows = settings.load_edited(connection)
    written = live.build_rows(rows, changes)
    _write(connection, store, live, rows, rows | written, names=written)
    return rows | written


def _reset(
    connection: Connection, store: Store, live: LiveSettings, names: tuple[str, ...]
) -> dict[str, str]:
    dialect.take_settings_lock(connection)
    rows = settings.load_edited(connection)
    remaining = live.rows_without(rows, names)
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
    """Write the wanted rows and an audit entry with the values of `names` before and after."""
    now = store.now(connection)
    settings.write(connection, {name: text for name, text in wanted.items() if name in names}, now=now)
    settings.delete_edited(connection, rows.keys() - wanted.keys())
    announce(connection, Topic.SETTING)
    ordered = sorted(names)
    is_recorded = any(rows.get(name) != wanted.get(name) for name in RECORDED.intersection(names))
    return record_audit(
        connection,
        f"settings.{verb}",
        NOUN,
        ordered,
        now=now,
        before=live.plain_values(rows, ordered),
        after=live.plain_values(wanted, ordered),
        restores={name: rows.get(name) for name in ordered},
        expects={name: wanted.get(name) for name in ordered},
        undoes=undoes,
        default=PROGRAM if is_recorded else None,
    )
