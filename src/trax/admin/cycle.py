"""One cycle of the manager: the lock, the clock, the settings, and the chain of junctions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from trax.admin.manifest_manager import Managed, Turn, manifest_manager
from trax.settings import Settings
from trax.store import Connection, leading
from trax.store.leading import Begun

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.store import Store


def manage(
    connection: Connection,
    store: Store,
    settings: Settings,
    turn: Turn,
    *,
    accept: Callable[[dict[str, str]], Settings] | None = None,
) -> Managed | None:
    """Run one cycle, unless another server is at it, or managing is switched off: then None.

    `accept` makes of the rows that operators have edited the settings that count.
    """
    begun = leading.begin(connection, settings, now=store.given_now(connection))
    settings = accept(begun.settings) if accept else settings
    if not (begun.leads and settings.manifest_manager_enabled):
        return None
    extra = {Connection: connection, Settings: settings, datetime: begun.now, Begun: begun}
    return manifest_manager.run_blocking(turn, extra=extra)
