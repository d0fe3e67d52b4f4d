from __future__ import annotations

from typing import Any

import pytest

from trax.cli.serve import database_warnings
from trax.server.roles import ProcessRole

FILE = "sqlite:///trax.db"
SERVER = "postgresql://trax@db/jobs"


@pytest.mark.parametrize("role", ProcessRole)
def test_a_database_server_has_no_caveats(role: ProcessRole) -> None:
    assert database_warnings(SERVER, role, processes=8, other_hosts=["box"]) == []


def test_one_process_on_a_file_is_what_files_are_for() -> None:
    assert database_warnings(FILE, ProcessRole.ALL) == []


@pytest.mark.parametrize(
    ("role", "how"),
    [(ProcessRole.WORKER, {}), (ProcessRole.SCHEDULER, {}), (ProcessRole.ALL, {"processes": 2})],
)
def test_processes_that_share_a_file_are_warned_of_its_limits(role: ProcessRole, how: Any) -> None:
    (said,) = database_warnings(FILE, role, **how)

    assert said.startswith(f"several processes share the SQLite file {FILE}")


def test_workers_on_other_machines_are_named() -> None:
    (said,) = database_warnings(FILE, ProcessRole.ALL, other_hosts=["box2", "box1", "box2"])

    assert said.startswith(f"workers on box1, box2 also use the SQLite file {FILE}")
    assert said.endswith("use PostgreSQL for more than one machine")


@pytest.mark.parametrize(
    ("role", "said"),
    [(ProcessRole.ALL, "it is lost at exit"), (ProcessRole.WORKER, "a worker alone cannot run jobs on it")],
)
def test_a_database_in_memory_is_reported_as_private_to_the_process(role: ProcessRole, said: str) -> None:
    (found,) = database_warnings("memory://", role)

    assert found.endswith(said)
