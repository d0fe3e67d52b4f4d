"""Stores for tests: all of them in a file and on PostgreSQL, and a few dozen tests in memory as well."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from tests.support.compiled import share_compiled_statements
from tests.support.databases import PostgresDatabases
from tests.support.order import spread

from trax.store import Store
from trax.testing import postgres
from trax.testing.postgres import usable_binaries, version_of

if TYPE_CHECKING:
    from collections.abc import Generator

settings.register_profile(
    "house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))

share_compiled_statements()

POSTGRESQL = "postgresql"
SERVERS = {"postgres_databases", "postgres_url", "newest_binaries", "newest_url"}
DIALECTS = ["sqlite", POSTGRESQL]
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
ROOM_BYTES = 2 * 1024**3
NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


def _has_room(folder: Path) -> bool:
    """Files in memory are written many times quicker, where there is enough of it and programs may be run."""
    return (
        folder.is_dir()
        and not os.statvfs(folder).f_flag & os.ST_NOEXEC
        and shutil.disk_usage(folder).free > ROOM_BYTES
    )


if _has_room(SHARED_MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED_MEMORY))

# Otherwise each of the many processes that tests start would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test printed or logged may hold half a surrogate pair, which no process can send to another."""
    report = yield
    report.sections = [(title, text.encode(errors="replace").decode()) for title, text in report.sections]
    return report


def pytest_xdist_auto_num_workers() -> int:
    """Twice as many as processors: a good part of the tests waits for other processes."""
    return (os.cpu_count() or 1) * 2


@pytest.fixture(scope="session")
def postgres_databases() -> Generator[PostgresDatabases]:
    with pytest.MonkeyPatch.context() as patch:
        if _has_room(SHARED_MEMORY):
            patch.setattr(tempfile, "tempdir", str(SHARED_MEMORY))
        with postgres() as server, PostgresDatabases(server).on_one_connection() as databases:
            yield databases


@pytest.fixture(scope="session")
def newest_binaries() -> Path:
    """The programs of the newest PostgreSQL here: that of the wheel, if the machine's own is older."""
    return max(usable_binaries(), key=version_of)


@pytest.fixture
def newest_url(newest_binaries: Path) -> Generator[str]:
    with postgres(binaries=newest_binaries) as server, PostgresDatabases(server).database() as address:
        yield address


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file to copy, which is quicker than to migrate."""
    file = tmp_path_factory.mktemp("migrated") / "trax.db"
    store = Store(f"sqlite:///{file}")
    store.open()
    store.close()
    return file


@pytest.fixture(params=DIALECTS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The address of a database that is migrated already, or in memory."""
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
            if migrated:
                shutil.copyfile(request.getfixturevalue("migrated_file"), folder / "trax.db")
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


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    for item in items:
        uses_server = SERVERS.intersection(getattr(item, "fixturenames", ()))
        if uses_server or POSTGRESQL in getattr(item, "name", ""):
            item.add_marker(POSTGRESQL)
    yield  # now those that were not asked for are left out
    if worker := getattr(config, "workerinput", None):
        items[:] = spread(items, worker["workercount"])


def pytest_collection_finish() -> None:
    """Let the garbage collector run seldom, and spare it what stays to the end: all modules and tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


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
    if logging.root.manager.disable != disabled_below:
        logging.disable(disabled_below)
    for logger, level, disabled, propagate in before:
        if logger.level != level:  # to set it empties the caches of all loggers
            logger.setLevel(level)
        logger.disabled, logger.propagate = disabled, propagate


def _our_loggers() -> list[logging.Logger]:
    names = [name for name in logging.root.manager.loggerDict if name.startswith("trax")]
    return [logging.root, *map(logging.getLogger, names)]
