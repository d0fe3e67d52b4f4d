from __future__ import annotations

from typing import Any

import pytest

from trax.cli.caveats import caveats
from trax.host.roles import Role

FILE = "sqlite:///trax.db"
SERVER = "postgresql://trax@db/jobs"


@pytest.mark.parametrize("role", Role)
def test_a_database_server_has_no_caveats(role: Role) -> None:
    assert caveats(SERVER, role, processes=8, elsewhere=["box"]) == []


def test_one_process_on_a_file_is_what_files_are_for() -> None:
    assert caveats(FILE, Role.ALL) == []


@pytest.mark.parametrize(
    ("role", "how"), [(Role.WORKER, {}), (Role.SCHEDULER, {}), (Role.ALL, {"processes": 2})]
)
def test_processes_that_share_a_file_are_told_of_its_limits(role: Role, how: Any) -> None:
    (said,) = caveats(FILE, role, **how)

    assert said.startswith(f"several processes share the SQLite file {FILE}")


def test_workers_on_other_machines_are_named() -> None:
    (said,) = caveats(FILE, Role.ALL, elsewhere=["box2", "box1", "box2"])

    assert said.startswith(f"workers on box1, box2 use the SQLite file {FILE} too")
    assert said.endswith("use PostgreSQL for more than one machine")


@pytest.mark.parametrize(
    ("role", "said"), [(Role.ALL, "it ends with it"), (Role.WORKER, "a worker on it has nobody to work with")]
)
def test_memory_is_nobody_elses(role: Role, said: str) -> None:
    (found,) = caveats("memory://", role)

    assert found.endswith(said)
