"""Records say where a run was executed, also when its worker is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.flow_seeding import USERS, Railway, rows

from trax.engine.dead_letters import clean_dead_letters
from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from sqlalchemy import Connection


def app_on(url: str) -> Railway:
    return Railway(url, host_environment="lab", host_instance_id="pod-7", host_labels={"zone": "b"})


def delete_records(connection: Connection) -> None:
    connection.execute(tables(connection).metadata.delete())


async def test_a_record_keeps_the_host_of_its_worker_when_the_worker_is_gone(url: str) -> None:
    app = app_on(url)
    async with Harness(app) as h:
        await app.queue(app.sync_table, USERS)
        await h.run_until_idle()

        assert await rows(h, "worker") == []
        (run,) = await app.executions.list()
        one = await app.executions.get(run.id)

    assert (run.host_environment, run.host_instance_id, run.host_labels) == ("lab", "pod-7", {"zone": "b"})
    assert one == run


async def test_a_run_without_a_worker_has_no_host(url: str) -> None:
    app = app_on(url)
    async with Harness(app) as h:
        await app.queue(app.sync_table, USERS)
        await h.cycle("job_dispatcher")
        (run,) = await app.executions.list()

    assert (run.host_environment, run.host_instance_id, run.host_labels) == (None, None, {})


async def test_a_direct_run_has_the_host_of_its_process(url: str) -> None:
    app = app_on(url)
    async with Harness(app):
        await app.run(app.sync_table, USERS)
        (run,) = await app.executions.list()

    assert (run.host_environment, run.host_labels) == ("lab", {"zone": "b"})


async def test_the_identity_of_a_worker_goes_with_its_last_record(url: str) -> None:
    app = app_on(url)
    async with Harness(app) as h:
        await app.queue(app.sync_table, USERS)
        await h.run_until_idle()
        store, settings = await app.context.store.open(), app.context.settings
        await store.call(clean_dead_letters, store, settings)
        kept = await rows(h, "worker_identity")

        await store.call(delete_records)
        await store.call(clean_dead_letters, store, settings)

        assert len(kept) >= 1
        assert await rows(h, "worker_identity") == []


async def test_the_identity_of_a_live_worker_stays_without_records(url: str) -> None:
    async with app_on(url) as app:
        store = await app.context.store.open()
        await store.call(clean_dead_letters, store, app.context.settings)

        found = await store.ask(_identities)

    assert found == ["pod-7"]


def _identities(connection: Connection) -> list[str]:
    identity = tables(connection).worker_identity
    return list(
        connection.execute(identity.select().with_only_columns(identity.c.host_instance_id)).scalars()
    )
