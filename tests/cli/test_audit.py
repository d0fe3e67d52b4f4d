"""`trax audit`: what the commands did, and undoing it."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Railway
    from tests.support.operator import Operator


@pytest.fixture
async def railway(trains: Railway) -> Railway:
    await trains.runs()
    return trains


@pytest.mark.usefixtures("railway")
def test_what_a_command_changes_is_written_down_and_undone(operator: Operator) -> None:
    operator("groups", "set", "etl", "--max-active-jobs", "5", "--reason", "month end")

    (entry,) = operator.json("audit", "list")
    assert (entry["actor"], entry["via"], entry["reason"]) == (getpass.getuser(), "cli", "month end")
    assert (entry["action"], entry["ids"]) == ("groups.update", ["etl"])

    undone = operator("audit", "undo", str(entry["id"]), "--reason", "never mind")
    assert (undone.code, undone.out) == (0, "undone: groups.update of etl, as audit entry 2\n")
    assert operator.json("groups", "show", "etl")["max_active_jobs"] is None
    assert operator.json("audit", "show", "2")["undoes"] == entry["id"]


@pytest.mark.usefixtures("railway")
def test_an_undo_that_would_overwrite_is_refused_unless_forced(operator: Operator) -> None:
    operator("settings", "set", "max_active_jobs=5")
    operator("settings", "set", "max_active_jobs=6")

    refused = operator("audit", "undo", "1")
    assert (refused.code, "settings have changed since: max_active_jobs" in refused.err) == (1, True)

    assert operator("audit", "undo", "1", "--force").code == 0
    assert operator.json("settings", "get", "max_active_jobs")["max_active_jobs"]["value"] == 10


@pytest.mark.usefixtures("railway")
def test_looking_leaves_no_entry(operator: Operator) -> None:
    operator("manifests", "list")
    operator("queue", "list")

    assert operator.json("audit", "list") == []
    assert operator("manifests", "disable", "greet-ada").code == 0
    assert operator.ids("audit", "list", "--target", "greet-ada") == [1]
    assert operator.ids("audit", "list", "--actor", "nobody") == []
