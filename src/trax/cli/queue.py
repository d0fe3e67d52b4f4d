"""`trax queue …`: add, list and cancel queue entries."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from trax.bounds import load_json
from trax.cli.lists import add_list
from trax.cli.operators import (
    AppOption,
    AsJson,
    At,
    DatabaseUrl,
    Delay,
    Id,
    Ids,
    Reason,
    TimeLimit,
    operate,
    report_cancelled,
    usage_error,
)
from trax.cli.output import say, show_one, single_line
from trax.errors import did_you_mean
from trax.records.nouns import ENTRIES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trax.app.app import Trax
    from trax.engine.enqueue import QueueKeywords
    from trax.worker.entry import QueuedEntry

queue = App(name="queue", help="Add, list and cancel queued jobs.")


@queue.command
def add(
    train: Annotated[str, Parameter(help="The name of the train.")],
    value: Annotated[str, Parameter(name="INPUT", help="The input as JSON.")] = "null",
    /,
    *,
    priority: Annotated[int | None, Parameter(help="0 to 31; the highest runs first.")] = None,
    group: Annotated[str | None, Parameter(help="The group whose limit applies.")] = None,
    delay: Delay = None,
    at: At = None,
    unique: Annotated[str | None, Parameter(help="A key that only one unfinished job may have.")] = None,
    max_retries: Annotated[
        int | None, Parameter(help="How many runs it may have; then it is a dead letter.")
    ] = None,
    timeout: TimeLimit = None,
    app: AppOption = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue a job.

    With --app or $TRAX_APP the input is validated now, and the train's priority, group, retries and timeout
    apply. Without the code workers validate name and input: an invalid input becomes a dead letter. They
    publish which fields are secrets, so an input of a train that no live worker knows is refused; without an
    input the job waits for one that does (a warning is printed).
    """
    from trax.cli.loading import app_of_environment

    options: QueueKeywords = {
        "priority": priority,
        "group": group,
        "delay": delay,
        "at": at,
        "unique": unique,
        "max_retries": max_retries,
        "timeout": timeout,
    }
    enqueue = _enqueue_call(train, _parse_input(value), options, is_app_named=app is not None)
    entry, warning = operate(database_url, enqueue, app=app or app_of_environment(), reason=reason)
    if warning is not None:
        sys.stderr.write(f"trax: warning: {single_line(warning)}\n")
    if as_json:
        show_one(entry, as_json=True)
    else:
        say(f"train {entry.train!r} is queued as entry {entry.id}")


def _enqueue_call(
    train: str, value: Any, options: QueueKeywords, *, is_app_named: bool
) -> Callable[[Trax], Awaitable[tuple[QueuedEntry, str | None]]]:
    async def enqueue(app: Trax) -> tuple[QueuedEntry, str | None]:
        if is_app_named or train in app.trains:
            return await app.queue(train, value, **options), None
        from trax.app.queue import enqueue_without_code

        entry = await enqueue_without_code(app.context, train, value, options)
        return entry, await _load_train_warning(app, train)

    return enqueue


async def _load_train_warning(app: Trax, train: str) -> str | None:
    """A warning if no live worker knows the train: its name may be misspelt."""
    live = [view.worker for view in await app.workers.list(jobs=1) if not view.is_lost]
    known = {name for worker in live for name in worker.trains}
    if train in known:
        return None
    hint = did_you_mean(train, known)
    return f"train {train!r} is not known to any of {len(live)} live workers; the entry waits for one{hint}"


add_list(queue, ENTRIES)


@queue.command
def show(entry_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one queue entry."""
    show_one(operate(database_url, lambda app: app.work_queue.get(entry_id)), as_json=as_json)


@queue.command
def cancel(
    *ids: Ids, reason: Reason = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> int:
    """Cancel entries that are still queued; `trax executions cancel` stops active runs."""
    if not ids:
        raise usage_error("No entries selected: give their ids.", "queue", "cancel")
    cancelled = operate(database_url, lambda app: app.work_queue.cancel(ids), reason=reason)
    return report_cancelled("cancelled", cancelled, ids, as_json=as_json)


def _parse_input(value: str) -> object:
    try:
        return load_json(value)
    except ValueError as error:
        hint = f"The input is not JSON: {error}."
        if not value.startswith(("{", "[", '"')):  # else it may hold a secret, and is no text
            as_text = shlex.quote(json.dumps(value, ensure_ascii=False))
            hint += f" To pass it as text, write {as_text}."
        raise usage_error(hint, "queue", "add") from None
