"""`trax audit`: what the commands did, and undoing it."""

from __future__ import annotations

import json
import os
import pwd
from typing import TYPE_CHECKING

import pytest

from trax.cli import audit

if TYPE_CHECKING:
    from tests.cli.conftest import Railway
    from tests.support.operator import Operator


@pytest.fixture
async def railway(trains: Railway) -> Railway:
    await trains.runs()
    return trains


@pytest.mark.usefixtures("railway")
def test_a_change_by_a_command_is_audited_and_can_be_undone(operator: Operator) -> None:
    operator("groups", "set", "etl", "--max-active-jobs", "5", "--reason", "month end")

    (entry,) = operator.json("audit", "list")
    assert (entry["actor"], entry["via"], entry["reason"]) == (
        pwd.getpwuid(os.getuid()).pw_name,
        "cli",
        "month end",
    )
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
def test_reading_leaves_no_audit_entry(operator: Operator) -> None:
    operator("manifests", "list")
    operator("queue", "list")

    assert operator.json("audit", "list") == []
    assert operator("manifests", "disable", "greet-ada").code == 0
    assert operator.ids("audit", "list", "--target", "greet-ada") == [1]
    assert operator.ids("audit", "list", "--actor", "nobody") == []


@pytest.mark.usefixtures("railway")
def test_the_actor_of_a_command_is_the_system_user_in_any_environment(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "ada")

    operator("settings", "set", "max_active_jobs=5")

    (entry,) = operator.json("audit", "list")
    assert entry["actor"] == pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.usefixtures("railway")
def test_a_user_without_a_name_is_recorded_by_their_id(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)

    operator("settings", "set", "max_active_jobs=5")

    assert operator.json("audit", "list")[0]["actor"] == "uid 4000000000"


@pytest.mark.usefixtures("railway")
def test_an_export_is_one_line_of_json_per_entry_oldest_first(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "LONGEST_PAGE", 2)
    for number in range(5):
        operator("settings", "set", f"max_active_jobs={number}", "--reason", "two\nlines")

    lines = [json.loads(line) for line in operator("audit", "export").out.splitlines()]
    rest = [json.loads(line) for line in operator("audit", "export", "--after", "3").out.splitlines()]

    assert [line["id"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines == operator.json("audit", "list")[::-1]
    assert rest == lines[3:]
    assert operator("audit", "export", "--until", "2020-01-01").out == ""


@pytest.mark.usefixtures("railway")
def test_a_retention_that_would_hide_what_was_done_is_refused_and_a_shorter_one_is_recorded(
    operator: Operator,
) -> None:
    refused = operator("settings", "set", "audit_retention_period=1ms")
    fixed = operator("settings", "set", "audit_retention_floor=30d")
    operator("settings", "set", "audit_retention_period=30d")

    assert (refused.code, fixed.code) == (1, 1)
    assert "30 days" in refused.err
    (entry,) = operator.json("audit", "list")
    assert (entry["action"], entry["ids"]) == ("settings.update", ["audit_retention_period"])
