"""`trax queue …`: what waits at the gate."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from trax.bounds import load_json
from trax.cli.operating import (
    AsJson,
    Before,
    CodeOf,
    DatabaseUrl,
    Delay,
    EntryOrigin,
    EntryStatus,
    Id,
    Ids,
    Limit,
    Reason,
    misuse,
    operate,
)
from trax.cli.showing import in_line, say, show_list, show_one
from trax.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trax.host.app import Trax
    from trax.host.entry import QueuedEntry
    from trax.host.wishes import QueueKeywords

LISTED: Final = (
    "id",
    "train",
    "status",
    "origin",
    "priority",
    "manifest",
    "group",
    "created_at",
    "scheduled_at",
)

queue = App(name="queue", help="What waits at the gate, and what was let through it.")


@queue.command
def add(
    train: str,
    value: Annotated[str, Parameter(name="INPUT", help="Its input as JSON.")] = "null",
    /,
    *,
    priority: int | None = None,
    group: str | None = None,
    delay: Delay = None,
    unique: Annotated[str | None, Parameter(help="A key that one unfinished job may have.")] = None,
    max_retries: int | None = None,
    app: CodeOf = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Ask for a run.

    With --app the input is checked against the train's type now, and what the train says of priority,
    group, retries and timeout counts. Without it, name and input are taken as they are: workers check them.
    An input that its train refuses becomes a dead letter; a name that no live worker knows waits for one that
    does, and a warning says so.
    """
    how: QueueKeywords = {
        "priority": priority,
        "group": group,
        "delay": None if delay is None else timedelta(seconds=delay),
        "unique": unique,
        "max_retries": max_retries,
    }
    ask = _asking(train, _parsed(value), how, has_code=app is not None)
    entry, doubt = operate(database_url, ask, app=app, reason=reason)
    if doubt is not None:
        sys.stderr.write(f"trax: warning: {in_line(doubt)}\n")
    if as_json:
        show_one(entry, as_json=True)
    else:
        say(f"{entry.train} is queued as entry {entry.id}")


def _asking(
    train: str, given: Any, how: QueueKeywords, *, has_code: bool
) -> Callable[[Trax], Awaitable[tuple[QueuedEntry, str | None]]]:
    async def ask(app: Trax) -> tuple[QueuedEntry, str | None]:
        if has_code:
            return await app.queue(train, given, **how), None
        from trax.host import bare

        return await bare.queue(app.parts, train, given, how), await _doubt(app, train)

    return ask


async def _doubt(app: Trax, train: str) -> str | None:
    """What to say of a name that nobody knows at this moment: perhaps it is misspelt."""
    live = [view.worker for view in await app.workers.list(jobs=1) if not view.is_lost]
    known = {name for worker in live for name in worker.trains}
    if train in known:
        return None
    hint = did_you_mean(train, known)
    return f"no live worker (of {len(live)}) knows train {train!r}; the entry waits for one that does{hint}"


@queue.command(name="list")
def list_(
    *,
    status: EntryStatus = None,
    train: str | None = None,
    manifest: str | None = None,
    group: str | None = None,
    origin: EntryOrigin = None,
    before: Before = None,
    limit: Limit = 50,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List entries, newest first."""
    found = operate(
        database_url,
        lambda app: app.work_queue.list(
            status=status,
            train=train,
            manifest=manifest,
            group=group,
            origin=origin,
            before=before,
            limit=limit,
            brief=not as_json,
        ),
    )
    show_list(found, LISTED, as_json=as_json)


@queue.command
def show(entry_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one entry."""
    show_one(operate(database_url, lambda app: app.work_queue.get(entry_id)), as_json=as_json)


@queue.command
def cancel(*ids: Ids, reason: Reason = None, database_url: DatabaseUrl = None) -> int:
    """Withdraw entries that are still queued; `trax executions cancel` stops what runs already."""
    if not ids:
        raise misuse("Which entries? Name their ids.", "queue", "cancel")
    count = operate(database_url, lambda app: app.work_queue.cancel(ids), reason=reason)
    say(f"withdrawn: {count} of {len(set(ids))}")
    return 0 if count == len(set(ids)) else 1


def _parsed(value: str) -> object:
    try:
        return load_json(value)
    except ValueError as wrong:
        as_text = shlex.quote(json.dumps(value, ensure_ascii=False))
        hint = f"The input is not JSON: {wrong}. If it is meant as text, write {as_text}."
        raise misuse(hint, "queue", "add") from None
