"""`current().activate`: from a running junction to the work queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.admin import activation
from trax.errors import RunInterrupted
from trax.store import activations, executions

if TYPE_CHECKING:
    from trax.host.live_settings import LiveSettings
    from trax.host.opening import OpenStore
    from trax.host.parameters import Parameters
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.train import Registry, Run


class Activating:
    """Wakes the dormant dependents of the manifest a run belongs to."""

    def __init__(
        self, store: OpenStore, trains: Registry, parameters: Parameters, live: LiveSettings
    ) -> None:
        self._store = store
        self._trains = trains
        self._parameters = parameters
        self._live = live

    async def __call__(self, run: Run, wanted: list[tuple[str, Any]], *, force: bool) -> int:
        store = await self._store.opened()
        trains = await store.ask(_trains, [external_id for external_id, _ in wanted])
        encoded = self._encoded(wanted, trains)
        return await store.call(_activate, store, run, encoded, self._live.now, force=force)

    def blocking(self, run: Run, wanted: list[tuple[str, Any]], *, force: bool) -> int:
        store = self._store.opened_blocking()
        trains = store.read(_trains, [external_id for external_id, _ in wanted])
        encoded = self._encoded(wanted, trains)
        return store.run(_activate, store, run, encoded, self._live.now, force=force)

    def _encoded(self, wanted: list[tuple[str, Any]], trains: dict[str, str]) -> list[tuple[str, str]]:
        """Inputs are checked before the transaction begins: validators are code of the user's."""
        return [(external_id, self._text(trains.get(external_id), value)) for external_id, value in wanted]

    def _text(self, train: str | None, value: Any) -> str:
        if train is None:
            return "null"  # the manifest is unknown, which is refused in the transaction
        return self._parameters.measured(self._trains.get(train)).encode(value)


def _trains(connection: Connection, external_ids: list[str]) -> dict[str, str]:
    return {name: row.train for name, row in activations.targets(connection, external_ids).items()}


def _activate(
    connection: Connection,
    store: Store,
    run: Run,
    wanted: list[tuple[str, str]],
    settings: Settings,
    *,
    force: bool,
) -> int:
    if not executions.is_in_progress(connection, run.metadata_id):
        raise RunInterrupted(
            f"run {run.metadata_id} is no longer in progress: it was put back or ended, and wakes nobody"
        )
    now = store.now(connection)
    return activation.activate(connection, str(run.manifest), wanted, settings, force=force, now=now)
