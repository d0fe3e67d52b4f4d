"""`trax status`: queue, runs, workers and problems; `trax why`: why a job does not run; `trax workers`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from trax.cli.lists import add_list
from trax.cli.operators import (
    AppOption,
    AsJson,
    DatabaseUrl,
    Id,
    operate,
    require_database,
)
from trax.cli.output import (
    as_mapping,
    moment,
    say,
    show_json,
    show_one,
    show_rows,
    single_line,
)
from trax.clock import format_distance
from trax.records.listing import COUNT_LIMIT
from trax.records.nouns import WORKERS
from trax.records.status import Status, problems

if TYPE_CHECKING:
    from datetime import datetime

    from trax.app.app import Trax
    from trax.records import Reason


Check = Annotated[
    bool, Parameter(negative=(), help="Print only problems, one per line; exit with 1 if there is one.")
]


def status(*, check: Check = False, database_url: DatabaseUrl = None, as_json: AsJson = False) -> int:
    """Show queue, runs, workers and problems.

    Problems are: an unusable database; runs waiting while no worker is alive; a manifest or a delayed entry
    overdue by a minute; servers of one app that declare different manifests or groups.
    """
    found = _read_status(require_database(database_url))
    wrong = problems(found)
    if as_json:
        show_json({**as_mapping(found), "problems": wrong})
    elif not check:
        _show(found)
    if not as_json:
        for problem in wrong:
            sys.stdout.flush()
            print(f"trax: {single_line(problem)}", file=sys.stderr)  # noqa: T201
    return 1 if check and wrong else 0


def _read_status(address: str) -> Status:
    """Read the status without an app: a health check runs this command often, and an app takes longer."""
    import asyncio

    from trax.engine.live_settings import LiveSettings
    from trax.engine.open_store import LazyStore
    from trax.events import Events
    from trax.inspect.status import status as read_status

    live = LiveSettings.load({"skip_migrations": True})
    store = LazyStore(address, live, Events())
    try:
        return asyncio.run(read_status(store, live))
    finally:
        store.close()


def _show(current: Status) -> None:
    rows: list[tuple[str, Any]] = [
        ("ready", current.ready),
        ("delayed", current.delayed),
        ("parked: no live worker for it", current.parked),
        ("pending", current.pending),
        ("running", current.running),
        ("failed in the last hour", current.failed_last_hour),
        ("dead letters waiting", current.dead_letters),
        ("manifests enabled", current.manifests_enabled),
        ("manifests disabled", current.manifests_disabled),
        ("next manifest due", _when(current.next_due_at, current)),
        ("next delayed entry", _when(current.next_delayed_at, current)),
        ("workers", len(current.workers)),
    ]
    show_rows(["what", "now"], [(what, _number(value)) for what, value in rows])
    if not current.workers:
        return
    say("")
    show_rows(
        ["worker", "host", "pid", "slots", "last heartbeat"],
        [
            [
                str(each.id),
                each.host,
                str(each.pid),
                str(each.concurrency),
                format_distance(each.heartbeat_at, current.now),
            ]
            for each in current.workers
        ],
    )


def _when(at: datetime | None, current: Status) -> str:
    return "-" if at is None else moment(at, current.now)


def _number(value: Any) -> str:
    return f"{value}+" if isinstance(value, int) and value >= COUNT_LIMIT else str(value)


ID_HELP = "A manifest, entry or run: its external id or number; run:7 means run 7."
TargetId = Annotated[str, Parameter(name="ID", help=ID_HELP)]


def why(
    what: TargetId, /, *, app: AppOption = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Explain why a manifest, entry or run is not running; the reason that blocks it now comes first.

    Without --app it uses the settings, trains and routes that live servers publish.
    """

    async def explain(app: Trax) -> list[Reason]:
        app.context.store.migrates = False
        return await app.why(what)

    reasons = operate(database_url, explain, app=app)
    if as_json:
        show_json({"id": what, "reasons": reasons})
        return
    for reason in reasons:
        say(reason.text)


workers = App(name="workers", help="List the processes that run jobs.")


add_list(workers, WORKERS)


@workers.command
def show(worker_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one worker: what it accepts, and what it runs."""
    found = operate(database_url, lambda app: app.workers.get(worker_id))
    view = as_mapping(found)
    flat = {**as_mapping(found.worker), **{name: view[name] for name in view if name != "worker"}}
    show_one(found if as_json else flat, as_json=as_json)
