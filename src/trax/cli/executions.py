"""`trax executions …`: list, show, cancel and rerun runs, and read their logs."""

from __future__ import annotations

import asyncio
from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from trax.cli.lists import add_list
from trax.cli.operators import (
    ID_RANGE,
    AsJson,
    DatabaseUrl,
    Id,
    Ids,
    Limit,
    Reason,
    operate,
    report_cancelled,
    usage_error,
)
from trax.cli.output import say, show_json, show_one
from trax.records.nouns import EXECUTIONS, LOGS
from trax.records.states import ACTIVE, State

if TYPE_CHECKING:
    from trax.app.app import Trax
    from trax.records import LogLine, Metadata

POLL_SECONDS: Final = 0.5
PAGE: Final = 1000

executions = App(name="executions", help="List, cancel and rerun executions; read their logs.")


add_list(executions, EXECUTIONS)


@executions.command
def show(metadata_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one execution: input, output and failure."""
    show_one(operate(database_url, lambda app: app.executions.get(metadata_id)), as_json=as_json)


@executions.command
def logs(
    metadata_id: Id,
    /,
    *,
    before: Annotated[
        int | None, Parameter(help="The last lines before the line with this id.", validator=ID_RANGE)
    ] = None,
    after: Annotated[
        int | None, Parameter(help="Continue after the log line with this id.", validator=ID_RANGE)
    ] = None,
    limit: Limit = PAGE,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print the log lines of an execution, oldest first."""
    lines = operate(
        database_url,
        lambda app: app.executions.logs(metadata_id, before=before, after=after, limit=limit),
    )
    if as_json:
        show_json(lines)
    else:
        for line in lines:
            say(_line(line))


@executions.command
def cancel(
    *ids: Ids, reason: Reason = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> int:
    """Cancel active executions: pending ones now, running ones when their worker is notified."""
    if not ids:
        raise usage_error("No executions selected: give their ids.", "executions", "cancel")
    cancelled = operate(database_url, lambda app: app.executions.cancel(ids), reason=reason)
    return report_cancelled("cancelled, or cancellation requested", cancelled, ids, as_json=as_json)


@executions.command
def rerun(
    metadata_id: Id, /, *, reason: Reason = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Enqueue the same train with the same input again."""
    entry = operate(database_url, lambda app: app.executions.rerun(metadata_id), reason=reason)
    if as_json:
        show_one(entry, as_json=True)
    else:
        say(f"train {entry.train!r} is queued as entry {entry.id}")


@executions.command
def follow(metadata_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> int:
    """Print the log lines of an execution until it ends; exit with 0 if it completed, otherwise with 1.

    With --json it prints only the record, at the end.
    """
    record = operate(database_url, lambda app: _follow_run(app, metadata_id, print_logs=not as_json))
    if as_json:
        show_one(record, as_json=True)
    else:
        reason = f": {record.failure_reason}" if record.failure_reason else ""
        say(f"run {record.id} of {record.train} {record.state}{reason}")
    return 0 if record.state is State.COMPLETED else 1


async def _follow_run(app: Trax, metadata_id: int, *, print_logs: bool) -> Metadata:
    last_id = None
    while True:
        record = await app.executions.get(metadata_id)  # before its lines, to miss none
        while print_logs and (lines := await app.executions.logs(metadata_id, after=last_id, limit=PAGE)):
            for line in lines:
                say(_line(line))
            last_id = lines[-1].id
        if record.state not in ACTIVE:
            return record
        await asyncio.sleep(POLL_SECONDS)


logs_of_all = App(name="logs", help="List log lines of all executions.")


add_list(logs_of_all, LOGS, " `trax executions logs` prints those of one.")


def _line(line: LogLine) -> str:
    head = f"{line.created_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z {line.level} {line.logger}:"
    below = f"\n{line.stack_trace}" if line.stack_trace else ""
    return f"{head} {line.message}{below}"
