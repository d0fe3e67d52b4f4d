"""Each noun and its verbs, as an operator types them: without the app's code, by the database alone."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.operator import publish, register

from trax import Manifest, Metadata
from trax.clock import utc_now
from trax.records import DeadLetter, ManifestGroup, WorkQueueEntry

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Railway
    from tests.support.operator import Operator

JOBS = """
from trax import Trax

app = Trax("{url}")

@app.train(priority=7)
def greet(name: str) -> None: ...
"""


@pytest.fixture(autouse=True)
def one_run_and_one_failure(trains: Railway) -> None:
    asyncio.run(trains.runs(0))


def test_manifests_are_listed_and_shown(operator: Operator) -> None:
    listed = operator("manifests", "list")
    shown = operator.json("manifests", "show", "greet-ada")

    assert [line[:5] for line in listed.lines] == [["greet-ada", "greet", "etl", "every 1 h", "yes"]]
    assert list(shown) == list(Manifest.__dataclass_fields__)
    assert (shown["input"], shown["schedule_type"], shown["enabled"]) == ({"name": "Ada"}, "interval", True)
    assert operator("manifests", "list", "--disabled").lines == []
    assert operator("manifests", "list", "--schedule-type", "on_demand").lines == []


def test_a_manifest_is_disabled_and_enabled(operator: Operator) -> None:
    assert operator("manifests", "disable", "greet-ada").out == "manifest 'greet-ada' is disabled\n"
    assert operator.json("manifests", "show", "greet-ada")["enabled"] is False

    assert operator("manifests", "enable", "greet-ada").code == 0
    assert operator.json("manifests", "show", "greet-ada")["enabled"] is True


def test_a_manifest_is_triggered_now_or_later(operator: Operator) -> None:
    now = operator("manifests", "trigger", "greet-ada")
    later = operator.json("manifests", "trigger", "greet-ada", "--delay", "1 min")

    newest, _ = operator.json("queue", "list", "--origin", "trigger")
    assert now.out.startswith("manifest 'greet-ada' is queued as entry ")
    assert newest == later
    assert (newest["scheduled_at"] is not None, newest["manifest"]) == (True, "greet-ada")


def test_a_manifest_is_retired_and_keeps_its_history(operator: Operator) -> None:
    assert operator("manifests", "cancel", "greet-ada").out == "cancellation requested: 0\n"

    runs = operator.json("executions", "list", "--train", "greet")

    assert operator("manifests", "delete", "greet-ada", "--yes").out == "manifest 'greet-ada' is retired\n"

    (retired,) = operator.json("manifests", "list", "--retired")
    assert operator.json("manifests", "list") == []
    assert (retired["external_id"], retired["retired_at"] is not None) == ("greet-ada", True)
    assert operator.json("executions", "list", "--train", "greet") == runs


def test_a_group_is_changed_and_its_other_values_stay(operator: Operator) -> None:
    operator("groups", "set", "etl", "--max-active-jobs", "3", "--disabled")
    operator("groups", "set", "etl", "--priority", "9")

    (group,) = operator.json("groups", "list")
    assert list(group) == list(ManifestGroup.__dataclass_fields__)
    assert (group["max_active_jobs"], group["priority"], group["enabled"]) == (3, 9, False)

    operator("groups", "set", "etl", "--max-active-jobs", "none", "--enabled")
    group = operator.json("groups", "show", "etl")
    assert (group["max_active_jobs"], group["priority"], group["enabled"]) == (None, 9, True)


def test_a_group_is_triggered_and_cancelled(operator: Operator) -> None:
    assert operator("groups", "trigger", "etl").out == "queued: 1\n"
    assert operator("groups", "cancel", "etl", "--yes").out == "cancellation requested: 0\n"


def test_a_train_is_queued_by_its_name_alone(operator: Operator, trains: Railway) -> None:
    publish(operator.url, "greet")
    words = ("--priority", "5", "--group", "etl", "--unique", "b", "--max-retries", "1")
    added = operator("queue", "add", "greet", '{"name": "Bob"}', *words)

    entry = operator.json("queue", "list", "--status", "queued")[0]
    assert added.out == f"train 'greet' is queued as entry {entry['id']}\n"
    assert list(entry) == list(WorkQueueEntry.__dataclass_fields__)
    assert (entry["input"], entry["priority"], entry["group"]) == ({"name": "Bob"}, 5, "etl")

    asyncio.run(trains.runs())
    assert operator.json("executions", "list", "--train", "greet")[0]["output"] == "Hello, Bob!"


def test_a_job_is_queued_for_a_moment_with_a_time_limit(operator: Operator) -> None:
    publish(operator.url, "greet")
    words = ("--at", "2027-03-01T12:00+01:00", "--timeout", "1h30m")
    operator("queue", "add", "greet", '{"name": "Bob"}', *words)

    entry = operator.json("queue", "list", "--status", "queued")[0]
    with closing(sqlite3.connect(operator.url.removeprefix("sqlite:///"))) as connection:
        (stored,) = connection.execute(
            "SELECT timeout_seconds FROM trax_work_queue WHERE id = ?", [entry["id"]]
        ).fetchone()
    assert (entry["scheduled_at"], stored) == ("2027-03-01T11:00:00Z", 5400)


def test_a_name_that_no_live_worker_knows_is_queued_with_a_warning(operator: Operator) -> None:
    nobody = operator("queue", "add", "greet")
    refused = operator("queue", "add", "greet", '{"name": "Bob"}')
    publish(operator.url, "greet")
    register(operator.url, "greet", "divide", beaten_at=utc_now())
    register(operator.url, "grets", beaten_at=utc_now() - timedelta(hours=1))

    known = operator("queue", "add", "greet", '{"name": "Bob"}')
    misspelt = operator("queue", "add", "gret", "--json")

    waits = "the entry waits for one"
    assert nobody.err == f"trax: warning: train 'greet' is not known to any of 0 live workers; {waits}\n"
    assert (refused.code, "no live worker knows this train" in refused.err) == (1, True)
    assert (known.code, known.err) == (0, "")
    assert misspelt.err == (
        f"trax: warning: train 'gret' is not known to any of 1 live workers; {waits}; did you mean 'greet'?\n"
    )
    assert (nobody.code, misspelt.code, json.loads(misspelt.out)["train"]) == (0, 0, "gret")


def test_an_input_that_the_train_refuses_ends_as_a_dead_letter(operator: Operator, trains: Railway) -> None:
    publish(operator.url, "greet")
    assert operator("queue", "add", "greet", '{"name": 1}').code == 0

    asyncio.run(trains.runs())

    assert "name: Input should be a valid string" in operator.json("dead-letters", "list")[0]["reason"]


def test_with_the_code_an_input_is_checked_at_once(operator: Operator, tmp_path: Path) -> None:
    (tmp_path / "checked_jobs.py").write_text(JOBS.format(url=operator.url), encoding="utf-8")
    code = ("--app", f"{tmp_path}/checked_jobs.py:app")

    refused = operator.plainly("queue", "add", "greet", "1", *code)
    taken = operator.plainly("queue", "add", "greet", '"Bob"', *code)
    unknown = operator.plainly("queue", "add", "gret", '"Bob"', *code)
    both = operator("queue", "add", "greet", '"Bob"', *code)

    assert refused.err.startswith("trax: train 'greet': invalid input")
    assert (refused.code, taken.code, unknown.code, both.code) == (1, 0, 1, 2)
    assert "did you mean 'greet'?" in unknown.err
    assert operator.json("queue", "list", "--status", "queued")[0]["priority"] == 7


def test_entries_are_withdrawn_while_they_wait(operator: Operator) -> None:
    publish(operator.url, "greet")
    entry = json.loads(operator("queue", "add", "greet", '{"name": "Bob"}', "--json").out)["id"]

    withdrawn = operator("queue", "cancel", str(entry))
    again = operator("queue", "cancel", str(entry), "999")

    assert (withdrawn.code, withdrawn.out) == (0, f"cancelled: 1 of 1 ({entry})\n")
    assert (again.code, again.out) == (1, "cancelled: 0 of 2\n")
    assert operator.json("queue", "show", str(entry))["status"] == "cancelled"


def test_executions_are_found_by_their_state(operator: Operator) -> None:
    (failed,) = operator.json("executions", "list", "--state", "failed")
    (completed,) = operator.json("executions", "list", "--state", "completed")

    assert list(failed) == list(Metadata.__dataclass_fields__)
    assert (failed["train"], failed["failure_exception"]) == ("divide", "ZeroDivisionError")
    assert completed["output"] == "Hello, Ada!"
    shown = operator("executions", "show", str(failed["id"])).out
    assert "ZeroDivisionError: division by zero" in shown
    before = ("--until", "2027-03-01T12:00:00")
    assert operator.json("executions", "list", *before) == []


def test_the_log_of_a_run_is_printed(operator: Operator) -> None:
    (run,) = operator.ids("executions", "list", "--state", "completed")

    printed = operator("executions", "logs", str(run))
    (line,) = operator.json("executions", "logs", str(run))

    assert printed.out.endswith("Z warning jobs: Hello, Ada!\n")
    assert (line["message"], line["level"]) == ("Hello, Ada!", "warning")


def test_a_run_is_followed_to_its_end(operator: Operator) -> None:
    (completed,) = operator.ids("executions", "list", "--state", "completed")
    (failed,) = operator.ids("executions", "list", "--state", "failed")

    good, bad = (operator("executions", "follow", str(run)) for run in (completed, failed))

    assert good.out.endswith(f"Z warning jobs: Hello, Ada!\nrun {completed} of greet completed\n")
    assert (good.code, bad.code, bad.out) == (0, 1, f"run {failed} of divide failed: division by zero\n")


def test_a_run_is_repeated_under_the_policy_it_had(operator: Operator, trains: Railway) -> None:
    (failed,) = operator.ids("executions", "list", "--state", "failed")

    entry = operator.json("executions", "rerun", str(failed))
    asyncio.run(trains.runs())

    assert (entry["origin"], entry["train"], entry["input"]) == ("rerun", "divide", 0)
    assert len(operator.ids("executions", "list", "--state", "failed")) == 2
    assert len(operator.ids("dead-letters", "list")) == 2  # max_retries=0: it is not tried again
    assert operator.json("queue", "list", "--status", "queued") == []


def test_a_run_that_is_over_cannot_be_cancelled(operator: Operator) -> None:
    (failed,) = operator.ids("executions", "list", "--state", "failed")

    told = operator("executions", "cancel", str(failed))

    assert (told.code, told.out) == (1, "cancelled, or cancellation requested: 0 of 1\n")


def test_a_dead_letter_is_requeued_once(operator: Operator) -> None:
    (letter,) = operator.json("dead-letters", "list", "--status", "awaiting_intervention")

    first = operator("dead-letters", "requeue", str(letter["id"]), "--note", "again")
    second = operator("dead-letters", "requeue", str(letter["id"]))

    assert list(letter) == list(DeadLetter.__dataclass_fields__)
    assert (first.code, first.out, second.code) == (0, "requeued: 1 of 1\n", 1)
    shown = operator.json("dead-letters", "show", str(letter["id"]))
    assert (shown["status"], shown["note"]) == ("retried", "again")
    assert operator.json("queue", "list", "--origin", "requeue")[0]["input"] == 0


def test_all_dead_letters_are_acknowledged_with_a_note(operator: Operator) -> None:
    told = operator("dead-letters", "ack", "--all", "--yes", "--note", "known")
    none = operator("dead-letters", "requeue", "--all", "--yes")

    assert (told.code, told.out, none.code, none.out) == (0, "acknowledged: 1\n", 0, "requeued: 0\n")
    (letter,) = operator.json("dead-letters", "list")
    assert (letter["status"], letter["note"]) == ("acknowledged", "known")


def test_settings_are_read_changed_and_reset(operator: Operator) -> None:
    changed = operator("settings", "set", "max_active_jobs=50", "default_job_timeout=PT90S")
    found = operator.json("settings", "get")

    assert changed.out == "set: max_active_jobs, default_job_timeout\n"
    assert found["max_active_jobs"] == {"value": 50, "origin": "operator"}
    assert found["default_job_timeout"] == {"value": "1 min 30 s", "origin": "operator"}
    assert "listen_url" not in found  # it may hold a password

    operator("settings", "set", "max_active_jobs=none")
    assert operator("settings", "get", "max_active_jobs").out == "-\n"

    operator("settings", "reset", "max_active_jobs")
    assert operator("settings", "get", "max_active_jobs").out == "10\n"
    assert operator("settings", "reset", "--yes").out == "reset: all\n"
    assert {said["origin"] for said in operator.json("settings", "get").values()} == {"default"}


def test_dead_letters_are_requeued_by_kind_of_failure(trains: Railway, operator: Operator) -> None:
    asyncio.run(trains.runs(0, 0))

    told = operator("dead-letters", "groups")
    ((fingerprint, count, train, failure),) = told.lines
    assert (count, train, failure) == ("3", "divide", "ZeroDivisionError: division by zero")
    assert operator.json("dead-letters", "groups")[0]["sample"]["train"] == "divide"

    canary = operator("dead-letters", "requeue", "--fingerprint", fingerprint, "--limit", "1")
    assert (canary.code, canary.out) == (0, "requeued: 1\n")
    rest = operator("dead-letters", "ack", "--fingerprint", fingerprint, "--note", "known")
    assert (rest.code, rest.out) == (0, "acknowledged: 2\n")
    assert operator("dead-letters", "requeue", "1", "--fingerprint", fingerprint).code == 2


@pytest.mark.parametrize(
    ("noun", "number"),
    [
        ("audit", 0),
        ("dead-letters", 1),
        ("executions", 2),
        ("groups", 1),
        ("logs", 1),
        ("manifests", 1),
        ("queue", 2),
        ("sessions", 0),
        ("workers", 0),
    ],
)
def test_every_list_can_be_counted(operator: Operator, noun: str, number: int) -> None:
    assert operator(noun, "list", "--count").out == f"{number}\n"
    assert operator.json(noun, "list", "--count", "--limit", "1") == {"count": number, "exact": True}


def test_lists_are_filtered_by_time_of_creation(operator: Operator) -> None:
    assert operator("executions", "list", "--since", "1h", "--count").out == "2\n"
    assert operator("executions", "list", "--until", "1h", "--count").out == "0\n"
    assert operator("audit", "list", "--since", "1h", "--count").out == "0\n"


def test_workers_are_listed_and_shown(operator: Operator) -> None:
    register(operator.url, "greet", beaten_at=utc_now())
    worker_id = operator.json("workers", "list")[0]["worker"]["id"]

    listed = operator("workers", "list")
    shown = operator("workers", "show", str(worker_id))

    assert [line[0] for line in listed.lines] == [str(worker_id)]
    assert operator.json("workers", "show", str(worker_id))["worker"]["id"] == worker_id
    assert {("host:", "box"), ("trains:", '["greet"]')} <= {
        tuple(line.split(maxsplit=1)) for line in shown.out.splitlines()
    }
    assert operator("workers", "show", "999").err.startswith("trax: there is no worker 999")
