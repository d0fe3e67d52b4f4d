"""`current().activate`: from a running junction to the work queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.admin import activation
from trax.store import activations

if TYPE_CHECKING:
    from trax.host.opening import OpenStore
    from trax.host.parameters import Parameters
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.train import Registry, Run


class Activating:
    """Wakes the dormant dependents of the manifest a run belongs to."""

    def __init__(
        self, store: OpenStore, trains: Registry, parameters: Parameters, settings: Settings
    ) -> None:
        self._store = store
        self._trains = trains
        self._parameters = parameters
        self._settings = settings

    async def __call__(self, run: Run, wanted: list[tuple[str, Any]], force: bool) -> int:  # noqa: FBT001
        """Inputs are checked before the transaction begins: validators are code of the user's."""
        store = await self._store.opened()
        trains = await store.ask(_trains, [external_id for external_id, _ in wanted])
        encoded = [
            (external_id, self._encoded(trains.get(external_id), value)) for external_id, value in wanted
        ]
        return await store.call(_activate, store, run, encoded, self._settings, force=force)

    def _encoded(self, train: str | None, value: Any) -> str:
        if train is None:
            return "null"  # the manifest is unknown, which is refused in the transaction
        return self._parameters.of_input(self._trains.get(train)).encode(value)


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
    now = store.now(connection)
    return activation.activate(connection, str(run.manifest), wanted, settings, force=force, now=now)
