"""PgQueuer, the fastest Python peer on PostgreSQL, in its own environment and its own database."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from bench.children import PROJECT, several
from bench.databases import database

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

    import psycopg

    from bench.children import Child

PYTHON: Final = PROJECT / ".venv-bench" / "bin" / "python"


def is_there() -> bool:
    """Whether it is installed and can be used; says so if not."""
    command = [PYTHON, "-c", "import asyncpg, pgqueuer, uvloop"]
    is_usable = PYTHON.exists() and subprocess.run(command, check=False, capture_output=True).returncode == 0
    if not is_usable:
        print("  (PgQueuer is not in .venv-bench: `make bench` puts it there. Figures without it follow.)")
    return is_usable


@contextmanager
def filled(server: str, jobs: int) -> Generator[str]:
    """A database with PgQueuer's tables and so many jobs in them."""
    with database(server) as url:
        ask("fill", url, jobs)
        yield url


def ask(what: str, url: str, *numbers: int) -> Any:
    command = [PYTHON, "-m", "bench.peers.pgqueuer_client", what, url, *map(str, numbers)]
    ended = subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ended.stdout or "null")


def workers(url: str, count: int = 1) -> AbstractContextManager[list[Child]]:
    return several(count, PYTHON, "bench.peers.pgqueuer_worker", url)


def is_drained(connection: psycopg.Connection) -> bool:
    """A job leaves the table when it is done; the newest is the last to go, so this reads one row."""
    return connection.execute("SELECT 1 FROM pgqueuer ORDER BY id DESC LIMIT 1").fetchone() is None


def succeeded(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'").fetchone()
    return int(row[0]) if row else 0
