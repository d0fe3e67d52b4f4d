from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text

from trax.errors import SchemaNotMigrated, SchemaTooNew
from trax.store import Store, migrations
from trax.store.migrations import status, version_table

if TYPE_CHECKING:
    from sqlalchemy import Connection


def set_version(connection: Connection, revision: str) -> None:
    where = version_table(connection)
    schema = f"{where['version_table_schema']}." if where["version_table_schema"] else ""
    connection.execute(text(f"UPDATE {schema}{where['version_table']} SET version_num = '{revision}'"))  # noqa: S608


def test_the_revisions_are_those_that_alembic_knows_in_its_order() -> None:
    script = ScriptDirectory(str(migrations.HERE))

    known = [revision.revision for revision in script.walk_revisions()]

    assert migrations.revisions() == known[::-1]


def test_opening_makes_the_tables_and_opening_again_changes_nothing(empty_url: str) -> None:
    store = Store(empty_url)
    assert store.read(status).state == "missing"

    store.open()
    first = store.read(status)
    store.open()

    assert first.state == "current"
    assert store.read(status) == first
    store.close()


def test_without_migrations_missing_tables_are_refused(empty_url: str) -> None:
    store = Store(empty_url)

    with pytest.raises(SchemaNotMigrated, match=r"there are no Trax tables.*trax db migrate"):
        store.open(skip_migrations=True)

    store.open()
    store.open(skip_migrations=True)
    store.close()


@pytest.mark.parametrize("skip_migrations", [False, True])
def test_a_newer_schema_is_refused(store: Store, skip_migrations: bool) -> None:
    store.run(set_version, "9999")

    with pytest.raises(SchemaTooNew, match=r"the schema is at 9999.*upgrade Trax on this server"):
        store.open(skip_migrations=skip_migrations)

    assert store.read(status).state == "newer"


def test_ten_servers_starting_at_once_leave_one_schema(empty_url: str) -> None:
    servers = [Store(empty_url) for _ in range(10)]
    start = threading.Barrier(len(servers))
    failures: list[BaseException] = []

    def open_together(server: Store) -> None:
        start.wait()
        try:
            server.open()
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    threads = [threading.Thread(target=open_together, args=[server]) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert servers[0].read(status).state == "current"
    for server in servers:
        server.close()
