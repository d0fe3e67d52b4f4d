"""Stores for tests: every one of them in memory, in a file and on PostgreSQL."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from tests.support.databases import PostgresDatabases

from trax.store import Store
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Generator

settings.register_profile(
    "house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))

POSTGRESQL = "postgresql"
SERVERS = {"postgres_databases", "postgres_url"}
DIALECTS = ["memory", "sqlite", POSTGRESQL]
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
ROOM_BYTES = 2 * 1024**3
NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="session")
def postgres_databases() -> Generator[PostgresDatabases]:
    with pytest.MonkeyPatch.context() as patch:
        if _has_room(SHARED_MEMORY):
            patch.setattr(tempfile, "tempdir", str(SHARED_MEMORY))
        with postgres() as server:
            yield PostgresDatabases(server)


def _has_room(folder: Path) -> bool:
    """Making a database writes many small files: ten times quicker in memory, where there is enough."""
    return folder.is_dir() and shutil.disk_usage(folder).free > ROOM_BYTES


@pytest.fixture(params=DIALECTS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The address of a database that is migrated already (PostgreSQL) or will be when opened."""
    with _database(request, tmp_path, migrated=True) as address:
        yield address


@pytest.fixture(params=DIALECTS)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The address of a database that Trax has never seen."""
    with _database(request, tmp_path, migrated=False) as address:
        yield address


@contextmanager
def _database(request: pytest.FixtureRequest, folder: Path, *, migrated: bool) -> Generator[str]:
    match request.param:
        case "memory":
            yield "memory://"
        case "sqlite":
            yield f"sqlite:///{folder}/trax.db"
        case _:
            databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
            with databases.database(migrated=migrated) as address:
                yield address


@pytest.fixture
def store(url: str) -> Generator[Store]:
    opened = Store(url, clock=lambda: NOON)
    opened.open()
    yield opened
    opened.close()


@pytest.fixture
def postgres_url(postgres_databases: PostgresDatabases) -> Generator[str]:
    """For what only PostgreSQL has: locks, plans, notifications."""
    with postgres_databases.database() as address:
        yield address


@pytest.fixture
def now() -> datetime:
    return NOON


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        uses_server = SERVERS.intersection(getattr(item, "fixturenames", ()))
        if uses_server or POSTGRESQL in getattr(item, "name", ""):
            item.add_marker(POSTGRESQL)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests PostgreSQL took part in, so that a run without it cannot pass for a whole one."""
    passed = terminalreporter.stats.get("passed", [])
    ran = sum(POSTGRESQL in report.keywords for report in passed)
    terminalreporter.write_line(f"{ran} tests ran on PostgreSQL")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Generator[None]:
    """A library that sets up logging in one test, or for a whole process, must not deafen the next one."""
    before = [(logger, logger.level, logger.disabled, logger.propagate) for logger in _our_loggers()]
    disabled_below = logging.root.manager.disable
    yield
    logging.disable(disabled_below)
    for logger, level, disabled, propagate in before:
        logger.setLevel(level)
        logger.disabled, logger.propagate = disabled, propagate


def _our_loggers() -> list[logging.Logger]:
    names = [name for name in logging.root.manager.loggerDict if name.startswith("trax")]
    return [logging.root, *map(logging.getLogger, names)]
