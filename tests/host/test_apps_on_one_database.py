"""Two apps share a database: a manifest belongs to one of them, also while both start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.flow_seeding import USERS, Railway

from trax import every
from trax.errors import DefinitionError
from trax.server.roles import ProcessDuties
from trax.store.schema import tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


def declaring(url: str, name: str) -> Railway:
    app = Railway(url, name=name)
    app.schedule(app.sync_table, "users", USERS, every(hours=1))
    return app


def worker_kinds(connection: Connection) -> list[str]:
    worker = tables(connection).worker
    return list(connection.execute(worker.select().with_only_columns(worker.c.kind)).scalars())


async def test_an_app_that_is_still_starting_counts_as_alive(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = declaring(url, "a"), declaring(url, "b")
    start = ProcessDuties.start

    async def start_after_the_other(*args: Any, **options: Any) -> ProcessDuties:
        monkeypatch.undo()
        with pytest.raises(DefinitionError, match="'users' is declared by app 'a', which runs on"):
            async with second:
                pass
        return await start(*args, **options)

    monkeypatch.setattr(ProcessDuties, "start", start_after_the_other)
    async with first:
        store = await first.context.store.open()
        kinds = await store.ask(worker_kinds)

    assert kinds == ["worker"]


async def test_an_app_that_has_stopped_leaves_its_manifests_to_another(url: str) -> None:
    async with declaring(url, "a"):
        pass

    async with declaring(url, "b") as app:
        assert [manifest.external_id for manifest in await app.manifests.list()] == ["users"]
