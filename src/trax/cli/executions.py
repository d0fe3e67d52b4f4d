"""`trax executions …`: what ran, what runs, and how it ended."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from trax.cli.operating import (
    AN_ID,
    AsJson,
    Before,
    DatabaseUrl,
    Id,
    Ids,
    Limit,
    Reason,
    RunState,
    misuse,
    operate,
)
from trax.cli.showing import say, show_json, show_list, show_one
from trax.records.states import ACTIVE, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.host.app import Trax
    from trax.records import LogLine, Metadata

LISTED: Final = ("id", "train", "state", "manifest", "attempt", "created_at", "ended_at", "failure_reason")
LOOK_SECONDS: Final = 0.5
PAGE: Final = 1000

executions = App(name="executions", help="What ran, what runs, and how it ended.")


@executions.command(name="list")
def list_(
    *,
    state: RunState = None,
    train: str | None = None,
    manifest: str | None = None,
    group: str | None = None,
    parent_id: Annotated[int | None, Parameter(validator=AN_ID)] = None,
    since: Annotated[datetime | None, Parameter(help="Made from then on; without a zone, UTC.")] = None,
    until: Annotated[datetime | None, Parameter(help="Made before then; without a zone, UTC.")] = None,
    admin: Annotated[bool, Parameter(negative=(), help="Also the trains that run Trax itself.")] = False,
    before: Before = None,
    limit: Limit = 50,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    wanted: dict[str, Any] = {
        "state": state,
        "train": train,
        "manifest": manifest,
        "group": group,
        "parent_id": parent_id,
        "since": _utc("--since", since),
        "until": _utc("--until", until),
        "admin": admin,
        "before": before,
        "limit": limit,
        "brief": not as_json,
    }
    found = operate(database_url, lambda app: app.executions.list(**wanted))
    show_list(found, LISTED, as_json=as_json)


@executions.command
def show(metadata_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one run with its input, its output and what went wrong."""
    show_one(operate(database_url, lambda app: app.executions.get(metadata_id)), as_json=as_json)


@executions.command
def logs(
    metadata_id: Id,
    /,
    *,
    after: Annotated[
        int | None, Parameter(help="Read on: the id of the last line already seen.", validator=AN_ID)
    ] = None,
    limit: Limit = PAGE,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print what a run has logged, oldest line first."""

    async def read(app: Trax) -> Sequence[LogLine]:
        await app.executions.get(metadata_id)
        return await app.executions.logs(metadata_id, after=after, limit=limit)

    lines = operate(database_url, read)
    if as_json:
        show_json(lines)
    else:
        for line in lines:
            say(_line(line))


@executions.command
def cancel(*ids: Ids, reason: Reason = None, database_url: DatabaseUrl = None) -> int:
    """Stop runs that are not over: at once, or as soon as their worker hears of it."""
    if not ids:
        raise misuse("Which executions? Name their ids.", "executions", "cancel")
    stopped = operate(database_url, lambda app: app.executions.cancel(ids), reason=reason)
    say(f"stopped or asked to stop: {len(stopped)} of {len(set(ids))}")
    return 0 if len(stopped) == len(set(ids)) else 1


@executions.command
def rerun(
    metadata_id: Id, /, *, reason: Reason = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Queue the same train with the same input once more."""
    entry = operate(database_url, lambda app: app.executions.rerun(metadata_id), reason=reason)
    if as_json:
        show_one(entry, as_json=True)
    else:
        say(f"{entry.train} is queued as entry {entry.id}")


@executions.command
def follow(metadata_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> int:
    """Print what a run logs until it is over; exit with 0 if it completed, else with 1.

    With --json nothing is printed but its record, at the end.
    """
    record = operate(database_url, lambda app: _followed(app, metadata_id, aloud=not as_json))
    if as_json:
        show_one(record, as_json=True)
    else:
        reason = f": {record.failure_reason}" if record.failure_reason else ""
        say(f"{record.train} {record.state}{reason}")
    return 0 if record.state is State.COMPLETED else 1


async def _followed(app: Trax, metadata_id: int, *, aloud: bool) -> Metadata:
    seen = None
    while True:
        record = await app.executions.get(metadata_id)  # before its lines: the last of them are not missed
        while aloud and (lines := await app.executions.logs(metadata_id, after=seen, limit=PAGE)):
            for line in lines:
                say(_line(line))
            seen = lines[-1].id
        if record.state not in ACTIVE:
            return record
        await asyncio.sleep(LOOK_SECONDS)


def _line(line: LogLine) -> str:
    head = f"{line.created_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z {line.level} {line.logger}:"
    below = f"\n{line.stack_trace}" if line.stack_trace else ""
    return f"{head} {line.message}{below}"


def _utc(option: str, given: datetime | None) -> datetime | None:
    if given is None or given.tzinfo is None:
        return given and given.replace(tzinfo=UTC)
    try:
        return given.astimezone(UTC)
    except OverflowError:  # the first and the last hours of all time, elsewhere
        raise misuse(f"{option} is no moment in UTC: {given}.", "executions", "list") from None
