"""`trax status`: how the whole stands, for people and for orchestrators."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from trax.cli.moments import moment, relative
from trax.cli.operating import AsJson, DatabaseUrl, operate
from trax.cli.showing import as_mapping, in_line, say, show_json, show_rows
from trax.host.status import status as read_status
from trax.records.status import COUNTED_TO, Status, problems

if TYPE_CHECKING:
    from datetime import datetime

Check = Annotated[
    bool, Parameter(negative=(), help="Say only what is wrong, a line each, and exit with 1 if anything is.")
]


def status(*, check: Check = False, database_url: DatabaseUrl = None, as_json: AsJson = False) -> int:
    """Show what waits, what runs, who is there and what is wrong.

    Wrong is: a database that cannot be used; runs that wait for a worker while none lives; a manifest or a
    delayed entry that nobody has taken up for a minute; servers of one app that declare different manifests.
    """
    found = operate(database_url, lambda app: read_status(app.parts))
    wrong = problems(found)
    if as_json:
        show_json({**as_mapping(found), "problems": wrong})
    elif not check:
        _show(found)
    if not as_json:
        for one in wrong:
            sys.stdout.flush()
            print(f"trax: {in_line(one)}", file=sys.stderr)  # noqa: T201
    return 1 if check and wrong else 0


def _show(found: Status) -> None:
    rows: list[tuple[str, Any]] = [
        ("ready", found.ready),
        ("delayed", found.delayed),
        ("waiting for a worker that takes it", found.parked),
        ("pending", found.pending),
        ("running", found.running),
        ("failed in the last hour", found.failed_last_hour),
        ("dead letters waiting", found.dead_letters),
        ("manifests enabled", found.manifests_enabled),
        ("manifests disabled", found.manifests_disabled),
        ("next manifest due", _when(found.next_due_at, found)),
        ("next delayed entry", _when(found.next_delayed_at, found)),
        ("workers", len(found.workers)),
    ]
    show_rows(["what", "now"], [(what, _number(value)) for what, value in rows])
    if not found.workers:
        return
    say("")
    show_rows(
        ["worker", "host", "pid", "slots", "last beat"],
        [
            [str(one.id), one.host, str(one.pid), str(one.concurrency), relative(one.heartbeat_at, found.now)]
            for one in found.workers
        ],
    )


def _when(at: datetime | None, found: Status) -> str:
    return "-" if at is None else moment(at, found.now)


def _number(value: Any) -> str:
    return f"{value}+" if isinstance(value, int) and value >= COUNTED_TO else str(value)
