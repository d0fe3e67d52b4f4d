"""One cycle of the manager: the lock, the clock, the chain of junctions, and a record if it did something."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from trax.admin.manifest_manager import Managed, Turn, manifest_manager
from trax.records.external_id import new_external_id
from trax.records.metadata import Ending, NewRun
from trax.records.states import State
from trax.settings import Settings
from trax.store import Connection, dialect, metadata

if TYPE_CHECKING:
    from trax.store import Store


def manage(connection: Connection, store: Store, settings: Settings, turn: Turn) -> Managed | None:
    """Run one cycle, unless another server is at it: then None, and nobody waits."""
    if not dialect.try_leader_lock(connection):
        return None
    now = store.now(connection)
    extra = {Connection: connection, Settings: settings, datetime: now}
    managed = manifest_manager.run_blocking(turn, extra=extra)
    if managed.changed:
        _record(connection, now)
    return managed


def _record(connection: Connection, now: datetime) -> None:
    """A cycle that changed something leaves a record; an idle one writes nothing."""
    run = NewRun(external_id=new_external_id(), train=manifest_manager.name, exempt=True)
    metadata_id = metadata.begin(connection, run, now=now)
    ending = Ending(metadata_id=metadata_id, worker_id=None, state=State.COMPLETED)
    metadata.finish(connection, [ending], now=now)
