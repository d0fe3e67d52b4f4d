"""A long history and a long queue, written by the database itself: each table is one INSERT … SELECT."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import BaseModel
from sqlalchemy import text

from trax import Trax, junction
from trax.store import stats

if TYPE_CHECKING:
    from trax.store import Connection, Store

TRAINS: Final = 50
WORKERS: Final = 20
TROUBLES: Final = 30
UNDER_WAY: Final = 400
"""The number of the newest runs that have not ended; half of them are pending."""
WEEK_SECONDS: Final = 7 * 24 * 3600
FAMOUS: Final = "sync-100001"
"""The manifest that many others depend on."""
GIVEN: Final = {"number": 0, "customer": "ada", "token": "hush"}
NUMBERS: Final = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {})"
STACK: Final = "Traceback (most recent call last):\n" + "  File jobs.py, line 7, in sync\n" * 40


class Job(BaseModel):
    """The input of the trains."""

    number: int
    customer: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The number of rows of each kind."""

    runs: int
    manifests: int
    queued: int
    letters: int
    lines: int
    groups: int = 200

    @classmethod
    def beside(cls, runs: int) -> Self:
        """The sizes that fit this number of runs."""
        return cls(
            runs=runs,
            manifests=max(500, runs // 10),
            queued=runs,
            letters=max(50, runs // 100),
            lines=max(1000, runs // 2),
        )


@dataclass(frozen=True, slots=True)
class Spelling:
    """The SQL that differs between the dialects."""

    schema: str
    moment: str
    document: str
    name: str

    def ago(self, seconds: str) -> str:
        return self.moment.format(seconds)

    @property
    def given(self) -> str:
        """An input, different in each row."""
        before, after = json.dumps(GIVEN).split("0", 1)
        return self.document.format(f"'{before}' || n || '{after}'")


POSTGRESQL: Final = Spelling(
    schema="trax.",
    moment="(now() - make_interval(secs => {}))",
    document="CAST({} AS json)",
    name="lpad(to_hex(n), 12, '0') || left(md5(n::text), 20)",
)
SQLITE: Final = Spelling(
    schema="trax_",
    moment="(strftime('%Y-%m-%dT%H:%M:%f', 'now', -({}) || ' seconds') || '000Z')",
    document="{}",
    name="printf('%012x', n) || lower(hex(randomblob(10)))",
)


def long_app(url: str | None = None, **settings: Any) -> Trax:
    """An app that knows the trains of the history and runs none of them."""
    app = Trax(url, **settings)

    for number in range(TRAINS):
        app.train(f"train-{10 + number}", work)
    return app


@junction
async def work(job: Job) -> Job:
    return job


def fill(store: Store, size: Size) -> None:
    """Write the history, and compute the totals of ended runs, as a server would have done."""
    store.run(write_rows, size)
    while (step := store.read(_next_step, store)) is not None:
        store.run(stats.add, step)


def write_rows(connection: Connection, size: Size) -> None:
    """Write the tables, without the totals of ended runs."""
    spelling = SQLITE if connection.dialect.name == "sqlite" else POSTGRESQL
    for written, count in (
        (_groups, size.groups),
        (_workers, WORKERS),
        (_manifests, size.manifests),
        (_runs, size.runs),
        (_letters, size.letters),
        (_entries, size.queued + size.queued // 10),
        (_lines, size.lines),
        (_actions, size.letters),
    ):
        table, columns = written(spelling, size)
        into = f"INSERT INTO {spelling.schema}{table} ({', '.join(columns)}) {NUMBERS.format(count)}"
        statement = f"{into} SELECT {', '.join(columns.values())} FROM numbers"  # noqa: S608 - nobody else has a word in it
        connection.execute(text(statement.replace(":", r"\:")))


def _next_step(connection: Connection, store: Store) -> stats.TotalsStep | None:
    return stats.next_step(connection, now=store.now(connection))


Columns = tuple[str, dict[str, str]]
"""A table, and the value of each of its columns in row n."""


def _groups(spelling: Spelling, _size: Size) -> Columns:
    made = spelling.ago("0")
    limit = "CASE WHEN n % 4 = 0 THEN n % 20 + 1 END"
    named = {"name": "'group-' || (100 + n)", "max_active_jobs": limit}
    return "manifest_group", {**named, "created_at": made, "updated_at": made}


def _workers(spelling: Spelling, _size: Size) -> Columns:
    return "worker", {
        "host": "'box-' || n",
        "host_environment": "'server'",
        "host_instance_id": "'box-' || n",
        "pid": "n",
        "concurrency": "20",
        "trains": "'[]'",
        "started_at": spelling.ago("3600"),
        "heartbeat_at": spelling.ago("-3600"),
    }


def _manifests(spelling: Spelling, size: Size) -> Columns:
    parent = "CASE WHEN n % 100 = 0 THEN 1 WHEN n % 5 = 0 THEN n - 1 END"
    return "manifest", {
        "external_id": "'sync-' || (100000 + n)",
        "train": f"'train-' || (10 + n % {TRAINS})",
        "input": spelling.given,
        "group_id": f"n % {size.groups} + 1",
        "enabled": "n % 100 <> 7",
        "origin": "'declared'",
        "schedule_type": "CASE WHEN n % 5 = 0 THEN 'dependent' ELSE 'interval' END",
        "interval_seconds": "CASE WHEN n % 5 <> 0 THEN 3600 END",
        "depends_on_id": parent,
        "misfire_policy": "'fire_once_now'",
        "max_retries": "3",
        "failure_count": "CASE WHEN n % 50 = 3 THEN 2 ELSE 0 END",
        "last_successful_run": spelling.ago("n % 3600"),
        "consumed_parent_success_at": spelling.ago("0"),
        "next_due_at": f"CASE WHEN n % 5 <> 0 THEN {spelling.ago('n % 3600 - 3600')} END",
        "created_at": spelling.ago("1000000"),
        "updated_at": spelling.ago("0"),
    }


def _runs(spelling: Spelling, size: Size) -> Columns:
    has_ended, has_failed = f"n <= {size.runs - UNDER_WAY}", "n % 50 = 7"
    is_running = f"n <= {size.runs - UNDER_WAY // 2}"
    since = f"({size.runs} - n) * {WEEK_SECONDS / size.runs:.4f}"
    failed = f"CASE WHEN {has_ended} AND {has_failed} THEN"
    reason = f"'row ' || n || ' of table ' || (n % {TROUBLES}) || ' is locked'"
    return "metadata", {
        "entry_id": "n",
        "external_id": spelling.name,
        "train": f"'train-' || (10 + n % {TRAINS})",
        "state": f"CASE WHEN {has_ended} THEN CASE WHEN {has_failed} THEN 'failed' ELSE 'completed' END "
        f"WHEN {is_running} THEN 'in_progress' ELSE 'pending' END",
        "manifest_id": f"n % {size.manifests} + 1",
        "group_id": f"n % {size.manifests} % {size.groups} + 1",
        "input": spelling.given,
        "output": f"CASE WHEN {has_ended} THEN {spelling.given} END",
        "created_at": spelling.ago(f"{since} + 3"),
        "started_at": f"CASE WHEN {is_running} THEN {spelling.ago(f'{since} + 0.02 * (n % 100)')} END",
        "ended_at": f"CASE WHEN {has_ended} THEN {spelling.ago(since)} END",
        "submitter": "'local'",
        "worker_id": f"n % {WORKERS} + 1",
        "host": f"'box-' || (n % {WORKERS} + 1)",
        "failure_junction": f"{failed} 'work' END",
        "failure_exception": f"{failed} 'TableLocked' END",
        "failure_reason": f"{failed} {reason} END",
        "stack_trace": f"{failed} '{STACK}' END",
    }


def _letters(spelling: Spelling, _size: Size) -> Columns:
    is_resolved = "n % 2 = 0"
    return "dead_letter", {
        "manifest_id": "n",
        "train": f"'train-' || (10 + n % {TRAINS})",
        "input": spelling.given,
        "status": f"CASE WHEN {is_resolved} THEN 'acknowledged' ELSE 'awaiting_intervention' END",
        "reason": "'failed 3 times in a row'",
        "retry_count": "3",
        "last_metadata_id": "50 * n + 7",
        "failure_exception": "'TableLocked'",
        "failure_reason": f"'row ' || n || ' of table ' || (n % {TROUBLES}) || ' is locked'",
        "fingerprint": f"'trouble-' || (n % {TROUBLES})",
        "dead_lettered_at": spelling.ago("n"),
        "resolved_at": f"CASE WHEN {is_resolved} THEN {spelling.ago('n - 1')} END",
    }


def _entries(spelling: Spelling, size: Size) -> Columns:
    """A tenth of the entries is delayed; before them are some that were already dispatched."""
    is_ready, is_queued = "n % 10 <> 3", f"n > {size.queued // 10}"
    return "work_queue", {
        "external_id": spelling.name,
        "train": f"'train-' || (10 + n % {TRAINS})",
        "input": spelling.given,
        "status": f"CASE WHEN {is_queued} THEN 'queued' ELSE 'dispatched' END",
        "origin": "'queue'",
        "ready": is_ready,
        "priority": "n % 3",
        "group_id": f"n % {size.groups} + 1",
        "manifest_id": f"CASE WHEN {is_queued} THEN NULL ELSE n % {size.manifests} + 1 END",
        "metadata_id": f"CASE WHEN {is_queued} THEN NULL ELSE n END",
        "scheduled_at": f"CASE WHEN {is_ready} THEN NULL ELSE {spelling.ago('-3600')} END",
        "created_at": spelling.ago(f"({2 * size.queued} - n) * 0.01"),
        "dispatched_at": f"CASE WHEN {is_queued} THEN NULL ELSE {spelling.ago('60')} END",
    }


def _lines(spelling: Spelling, size: Size) -> Columns:
    return "log", {
        "metadata_id": f"{size.runs} - n % {size.runs}",
        "created_at": spelling.ago(f"({size.lines} - n) * 0.1"),
        "level": "CASE WHEN n % 100 = 0 THEN 'error' ELSE 'information' END",
        "logger": "'jobs.sync'",
        "message": "'fetched page ' || n || ' of the table, all rows of it were new to us'",
    }


def _actions(spelling: Spelling, _size: Size) -> Columns:
    return "audit", {
        "at": spelling.ago("n"),
        "actor": "'operator-' || n % 10",
        "via": "'api'",
        "action": "CASE WHEN n % 2 = 0 THEN 'groups.update' ELSE 'manifests.trigger' END",
        "noun": "'group'",
        "ids": "'[\"group-101\"]'",
        "targets": "1",
        "before": "'{\"priority\": 1}'",
        "after": "'{\"priority\": 2}'",
    }
