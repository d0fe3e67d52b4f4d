"""A real standby of a server: it holds every commit that was answered, and may be promoted."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg
from tests.support.waiting import until

from trax.testing.postgres import PostgresServer, free_port

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@dataclass(frozen=True)
class Standby:
    """It accepts reads only, until it is promoted."""

    server: PostgresServer

    def promote(self) -> None:
        _run(self.server, "pg_ctl", "promote", "-w", "-D", self.server.folder / "data")


@contextmanager
def standby_of(primary: PostgresServer) -> Generator[Standby]:
    """Copy a server as it runs. From now on it answers no commit that its copy does not have as well."""
    folder = primary.folder / "standby"
    folder.mkdir(mode=0o700)
    (folder / "log").touch()
    primary.owner.chown_all(folder)
    _run(primary, "pg_basebackup", "-D", folder / "data", "-R", "-c", "fast", "-d", primary.url)
    standby = replace(primary, folder=folder, port=free_port())
    standby.start()
    try:
        with psycopg.connect(primary.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            question = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            until(lambda: connection.execute(question).fetchone() is not None)
        yield Standby(standby)
    finally:
        standby.stop()


def _run(server: PostgresServer, program: str, *arguments: str | Path) -> None:
    with (server.folder / "log").open("ab") as log:
        status = server.owner.run(
            server.binaries / program, *arguments, stdin=subprocess.DEVNULL, output=log.fileno()
        )
    assert status == 0, (server.folder / "log").read_text(encoding="utf-8")
