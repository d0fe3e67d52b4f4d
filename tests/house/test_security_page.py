"""What the page says users of PostgreSQL may do is what they can do, and no more."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import make_url

from trax import Trax, every
from trax.cli import main
from trax.errors import AccessDenied

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.support.databases import PostgresDatabases

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "secure-an-installation.md"
SQL = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
ROLES = ("trax_owner", "trax_app", "trax_web", "trax_read")
PASSWORDS: dict[str, str] = dict(zip(ROLES, ("one", "two", "three", "four"), strict=True))


@pytest.fixture(scope="module")
def address_of(postgres_databases: PostgresDatabases) -> Generator[Callable[[str], str]]:
    """The addresses of the users, after both parts of the page were typed in."""
    by_the_administrator, by_the_owner = SQL.findall(PAGE.read_text(encoding="utf-8"))
    with postgres_databases.database(migrated=False) as given:
        url = make_url(given)

        def address_of(role: str) -> str:
            return url.set(username=role, password=PASSWORDS[role]).render_as_string(hide_password=False)

        execute(given, by_the_administrator.replace("DATABASE jobs", f"DATABASE {url.database}"))
        try:
            with pytest.raises(SystemExit, match="0"):
                main(["db", "migrate", "--database-url", address_of("trax_owner")])
            execute(address_of("trax_owner"), by_the_owner)
            yield address_of
        finally:
            for role in ROLES:
                execute(given, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def execute(address: str, statements: str) -> None:
    with psycopg.connect(address) as connection:
        connection.execute(statements.encode())


def railway(address: str) -> Trax:
    app = Trax(address, skip_migrations=True)

    @app.train(group="mail")
    async def send(to: str) -> str:
        return f"sent to {to}"

    return app


async def test_the_app_runs_everything_and_migrates_nothing(address_of: Callable[[str], str]) -> None:
    app = railway(address_of("trax_app"))
    app.schedule(app.trains.get("send"), "daily", "ada", every(days=1))

    async with app:
        entry = await app.queue("send", "grace", unique="grace", max_retries=1)
        assert (await entry.wait(timeout=30)).output == "sent to grace"
        assert len(await app.queue_many("send", [f"reader {number}" for number in range(600)])) == 600
        await app.settings.update(max_active_jobs=50)
        await app.groups.update("mail", max_active_jobs=5)
        await app.manifests.disable("daily")

    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(address_of("trax_app"), "ALTER TABLE trax.metadata ADD COLUMN more TEXT")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(address_of("trax_app"), "DELETE FROM trax.alembic_version")


async def test_a_web_application_may_queue_and_wait_and_nothing_else(
    address_of: Callable[[str], str],
) -> None:
    web, server = railway(address_of("trax_web")), railway(address_of("trax_app"))

    async with server:
        for _ in range(2):  # the second time the key of a job that is over is taken over
            entry = await web.queue("send", "ada", unique="ada", group="new")
            assert (await entry.wait(timeout=30)).state == "completed"
    entries = await web.queue_many("send", [f"reader {number}" for number in range(600)])

    with pytest.raises(AccessDenied):
        await web.work_queue.cancel([entries[0].id])
    with pytest.raises(AccessDenied):
        await web.settings.update(max_active_jobs=1)
    web.close()


async def test_a_reader_does_not_write(address_of: Callable[[str], str]) -> None:
    reader = railway(address_of("trax_read"))

    assert await reader.dead_letters.list() == []
    with pytest.raises(AccessDenied):
        await reader.queue("send", "ada")
    reader.close()


def test_reading_commands_need_only_the_reader_role(address_of: Callable[[str], str]) -> None:
    for words in (["status"], ["executions", "list"], ["db", "status"], ["db", "doctor"]):
        with pytest.raises(SystemExit, match="0"):
            main([*words, "--database-url", address_of("trax_read")])


LOCKS = ("gate_lock", "leader_lock", "settings_lock", "cleanup_lock", "totals_lock", "alembic_version")
MODES = ("ROW SHARE", "SHARE UPDATE EXCLUSIVE", "SHARE", "ACCESS EXCLUSIVE")


@pytest.mark.parametrize("role", ["trax_web", "trax_read"])
async def test_a_role_that_may_not_run_jobs_cannot_hold_the_locks_of_servers(
    address_of: Callable[[str], str], role: str
) -> None:
    server = railway(address_of("trax_app"))
    with psycopg.connect(address_of(role)) as intruder:
        for table, mode in product(LOCKS, MODES):
            refuse(intruder, f"LOCK TABLE trax.{table} IN {mode} MODE")
        for call in ("take_gate_lock()", "take_lock('leader')", "try_lock('settings')"):
            refuse(intruder, f"SELECT trax.{call}")
        for number in range(7):
            intruder.execute("SELECT pg_advisory_lock(%s)", (0x7472_6178_0000 + number,))
        if role == "trax_read":
            intruder.execute("LOCK TABLE trax.gate_lock, trax.leader_lock IN ACCESS SHARE MODE")

        async with server:
            entry = await server.queue("send", "ada")
            assert (await entry.wait(timeout=30)).state == "completed"


def refuse(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())
    connection.rollback()


ENTRY = {
    "created_at": "now()",
    "ready": "true",
    "external_id": "'attack'",
    "train": "'send'",
    "input": "'\"eve\"'",
    "origin": "'queue'",
    "status": "'queued'",
}
"""What whoever may only queue can write into the queue."""
GROUP = {"name": "'attack'", "created_at": "now()", "updated_at": "now()"}
FORBIDDEN = {
    "the place of a schedule": ("work_queue", {**ENTRY, "manifest_id": "1", "origin": "'schedule'"}),
    "the place of a dead letter": ("work_queue", {**ENTRY, "dead_letter_id": "1"}),
    "a run of others": ("work_queue", {**ENTRY, "metadata_id": "1"}),
    "a time of dispatch": ("work_queue", {**ENTRY, "dispatched_at": "now()"}),
    "a time of parking": ("work_queue", {**ENTRY, "parked_at": "now()"}),
    "an attempt": ("work_queue", {**ENTRY, "attempt": "7"}),
    "the largest id": ("work_queue", {**ENTRY, "id": "9223372036854775807"}),
    "a priority that is applied for ever": ("manifest_group", {**GROUP, "apply_priority_at": "now()"}),
    "a group that an operator has edited": ("manifest_group", {**GROUP, "edited_at": "now()"}),
    "a group that is retired": ("manifest_group", {**GROUP, "retired_at": "now()"}),
    "the largest id of a group": ("manifest_group", {**GROUP, "id": "9223372036854775807"}),
}


@pytest.mark.parametrize(("table", "values"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_role_that_may_only_queue_cannot_write_columns_of_servers(
    address_of: Callable[[str], str], table: str, values: dict[str, str]
) -> None:
    columns, expressions = ", ".join(values), ", ".join(values.values())
    insert = f"INSERT INTO trax.{table} ({columns}) VALUES ({expressions})"  # noqa: S608 - of constants
    with psycopg.connect(address_of("trax_web")) as intruder:
        refuse(intruder, insert)


@pytest.mark.parametrize("role", ["trax_web", "trax_read"])
async def test_a_role_that_may_not_run_jobs_cannot_lock_entries_of_others(
    address_of: Callable[[str], str], role: str
) -> None:
    server = railway(address_of("trax_app"))
    with psycopg.connect(address_of(role)) as intruder:
        for strength in ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"):
            for table in ("work_queue", "metadata", "manifest", "manifest_group", "setting"):
                refuse(intruder, f"SELECT * FROM trax.{table} FOR {strength}")  # noqa: S608

        async with server:
            entry = await server.queue("send", "ada")
            assert (await entry.wait(timeout=30)).state == "completed"


def test_the_key_of_an_unfinished_job_cannot_be_released(address_of: Callable[[str], str]) -> None:
    web = railway(address_of("trax_web"))
    held = web.sync.queue("send", "ada", unique="held")
    with psycopg.connect(address_of("trax_web")) as intruder:
        intruder.execute("SELECT trax.release_key(%s, 'held')", (held.id,))
    with psycopg.connect(address_of("trax_read")) as reader:
        refuse(reader, f"SELECT trax.release_key({held.id}, 'held')")

    assert web.sync.queue("send", "grace", unique="held").id == held.id
    web.close()
