"""`current().activate`: enqueue dormant dependents from within a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.admin import activation
from trax.errors import RunInterrupted
from trax.store import activations, executions

if TYPE_CHECKING:
    from trax.host.live_settings import LiveSettings
    from trax.host.opening import LazyStore
    from trax.host.parameters import Parameters
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.train import Registry, Run


class ManifestActivator:
    """Activates dormant dependents of the manifest that a run belongs to."""

    def __init__(
        self, store: LazyStore, trains: Registry, parameters: Parameters, live: LiveSettings
    ) -> None:
        self._store = store
        self._trains = trains
        self._parameters = parameters
        self._live = live

    async def __call__(self, run: Run, targets: list[tuple[str, Any]], *, force: bool) -> int:
        store = await self._store.open()
        trains = await store.ask(_train_names, [external_id for external_id, _ in targets])
        encoded = self._encode_inputs(targets, trains)
        return await store.call(_activate, store, run, encoded, self._live.current, force=force)

    def activate_blocking(self, run: Run, targets: list[tuple[str, Any]], *, force: bool) -> int:
        store = self._store.open_blocking()
        trains = store.read(_train_names, [external_id for external_id, _ in targets])
        encoded = self._encode_inputs(targets, trains)
        return store.run(_activate, store, run, encoded, self._live.current, force=force)

    def _encode_inputs(self, targets: list[tuple[str, Any]], trains: dict[str, str]) -> list[tuple[str, str]]:
        """Validate and encode before the transaction begins: validators are user code and may be slow."""
        return [
            (external_id, self._encode_input(trains.get(external_id), value))
            for external_id, value in targets
        ]

    def _encode_input(self, train: str | None, value: Any) -> str:
        if train is None:
            return "null"  # unknown manifest: rejected later, in the transaction
        return self._parameters.input_writer(self._trains.get(train)).encode(value)


def _train_names(connection: Connection, external_ids: list[str]) -> dict[str, str]:
    return {name: row.train for name, row in activations.load_targets(connection, external_ids).items()}


def _activate(
    connection: Connection,
    store: Store,
    run: Run,
    targets: list[tuple[str, str]],
    settings: Settings,
    *,
    force: bool,
) -> int:
    if not executions.is_in_progress(connection, run.metadata_id):
        raise RunInterrupted(
            f"run {run.metadata_id} is no longer in progress (put back or ended); nothing was activated"
        )
    now = store.now(connection)
    return activation.activate(connection, str(run.manifest), targets, settings, force=force, now=now)
