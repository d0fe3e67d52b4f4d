"""`app.settings`: how this installation behaves, edited while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from trax.events import Topic
from trax.host.live_settings import check_known
from trax.store import dialect, settings
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.host.live_settings import LiveSettings
    from trax.host.parts import Parts
    from trax.settings import SettingOrigin, Settings
    from trax.store import Connection, Store

    T = TypeVar("T")
    Edit = Callable[[Connection, Store, LiveSettings, T], dict[str, str]]
    """Writes what is wanted, and gives the rows there are then."""


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

    async def update(self, **changes: Any) -> Settings:
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


def _update(
    connection: Connection, store: Store, live: LiveSettings, changes: dict[str, Any]
) -> dict[str, str]:
    dialect.take_settings_lock(connection)
    rows = settings.stored(connection)
    written = live.changed(rows, changes)
    settings.write(connection, written, now=store.now(connection))
    announce(connection, Topic.SETTING)
    return rows | written


def _reset(
    connection: Connection, _store: Store, live: LiveSettings, names: tuple[str, ...]
) -> dict[str, str]:
    dialect.take_settings_lock(connection)
    rows = settings.stored(connection)
    remaining = live.without(rows, names)
    settings.forget(connection, rows.keys() - remaining.keys())
    announce(connection, Topic.SETTING)
    return remaining
