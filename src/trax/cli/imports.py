"""`trax import`: what another scheduler was told, as manifests of ours. No database is written to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from trax.cli.importing import apscheduler, celery_beat, crontab, plan
from trax.cli.importing.comparing import compared
from trax.cli.importing.foreign import told_apart
from trax.cli.importing.module import as_python
from trax.cli.loading import load_object
from trax.cli.operating import AsJson  # noqa: TC001 - cyclopts reads it
from trax.cli.showing import say, show_json, show_rows
from trax.clock import utc_now
from trax.errors import DefinitionError
from trax.store.foreign_jobs import apscheduler_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from trax.cli.importing.foreign import Foreign

Zone = Annotated[str | None, Parameter("--tz", help="The clocks that cron reads; else this machine's.")]
Users = Annotated[
    bool | None, Parameter("--users", help="Whether each line names a user, as those in /etc/crontab do.")
]
Table = Annotated[str, Parameter(help="The table of the job store.")]
Trust = Annotated[
    bool,
    Parameter(negative=(), help="Open the pickles of the job store, which runs the code that they name."),
]

CrontabFile = Annotated[str, Parameter(allow_leading_hyphen=True)]

imports = App(
    name="import",
    help="""Show another scheduler's jobs as manifests, and write nothing.

    A Python module goes to stdout, so redirect it to a file. The plan goes to stderr: what runs when, the
    next ten moments of both sides compared, and what differs, in words.""",
)


@imports.command(name="crontab")
def from_crontab(
    source: CrontabFile, /, *, tz: Zone = None, users: Users = None, as_json: AsJson = False
) -> None:
    """Show the lines of a crontab as manifests; SOURCE is a file, or - for stdin (`crontab -l | …`)."""
    text = sys.stdin.read() if source == "-" else _text(Path(source))
    zone = tz or crontab.zone_of_this_machine()
    has_users = users if users is not None else crontab.is_of_the_system(Path(source))
    clocks = f"cron reads the clocks of its machine, taken to be in {zone}; say --tz if they are not"
    _show(
        lambda now: crontab.Crontab(has_users, zone, now).read(text),
        source="stdin" if source == "-" else source,
        in_general=(clocks, *crontab.IN_GENERAL),
        as_json=as_json,
    )


@imports.command(name="celery-beat")
def from_celery_beat(source: str, /, *, as_json: AsJson = False) -> None:
    """Show the beat schedule of a Celery app as manifests; SOURCE is module:app or file.py:app."""
    app = load_object(source)
    _show(
        lambda now: celery_beat.read_beat(app, now),
        source=source,
        in_general=celery_beat.IN_GENERAL,
        as_json=as_json,
    )


@imports.command(name="apscheduler")
def from_apscheduler(
    source: str, /, *, table: Table = "apscheduler_jobs", trust: Trust = False, as_json: AsJson = False
) -> None:
    """Show the jobs of an APScheduler 3 job store as manifests; SOURCE is its database URL, or its file."""
    url = source if "://" in source else f"sqlite:///{source}"
    stored = apscheduler_jobs(url, table)
    _show(
        lambda now: apscheduler.read_jobs(stored, now, trust=trust),
        source=f"the table {table}",
        in_general=apscheduler.in_general(trust=trust),
        as_json=as_json,
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as refused:
        raise DefinitionError(
            f"{str(file)!r} cannot be read ({refused.strerror}); name a crontab, or - for stdin"
        ) from None


def _show(
    read: Callable[[datetime], Iterable[Foreign]], *, source: str, in_general: Sequence[str], as_json: bool
) -> None:
    now = utc_now()
    found = told_apart(read(now))
    results = compared(found, now)
    python = as_python(found, source)
    if as_json:
        manifests: list[dict[str, Any]] = [plan.document(one) for one in results]
        show_json({"manifests": manifests, "remarks": in_general, "python": python})
        return
    say(python.rstrip())
    show_rows(plan.HEADER, plan.rows(results), to=sys.stderr)
    for line in (*plan.lines(results), "in general:", *(f"  - {remark}" for remark in in_general)):
        sys.stderr.write(f"{line}\n")
