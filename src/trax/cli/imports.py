"""`trax import`: convert jobs of another scheduler into manifests. Writes to no database."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from trax.cli.operators import AsJson  # noqa: TC001 - cyclopts reads it
from trax.cli.output import say, show_json, show_rows
from trax.clock import utc_now
from trax.errors import DefinitionError, format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from trax.cli.importing.foreign import ImportedJob

Zone = Annotated[
    str | None, Parameter("--tz", help="The time zone that cron uses; default: that of this machine.")
]
Users = Annotated[
    bool | None, Parameter("--users", help="Whether each line names a user, as in /etc/crontab.")
]
Table = Annotated[str, Parameter(help="The table of the job store.")]
Trust = Annotated[
    bool,
    Parameter(negative=(), help="Unpickle the jobs, which runs code that the pickles name."),
]

CrontabFile = Annotated[str, Parameter(help="A file, or - for stdin.", allow_leading_hyphen=True)]
CeleryApp = Annotated[str, Parameter(help="The Celery app: module:app or file.py:app.")]
JobStore = Annotated[str, Parameter(help="A database URL, or an SQLite file.")]

imports = App(
    name="import",
    help="""Convert jobs of cron, Celery beat or APScheduler into manifests.

    Prints a Python module to stdout: redirect it to a file. Prints a plan to stderr: what runs when, the next
    ten run times on both sides, and what differs. No database is changed.""",
)


@imports.command(name="crontab")
def from_crontab(
    source: CrontabFile, /, *, tz: Zone = None, users: Users = None, as_json: AsJson = False
) -> None:
    """Convert a crontab; SOURCE is a file, or - for stdin (`crontab -l | …`)."""
    from trax.cli.importing import crontab

    text = sys.stdin.read() if source == "-" else _read_text(Path(source))
    zone = tz or crontab.local_zone_name()
    has_users = users if users is not None else crontab.is_system_crontab(Path(source))
    clocks = f"cron uses the time zone of its machine, assumed to be {zone}; give --tz if it is another"
    _show(
        lambda now: crontab.Crontab(has_users, zone, now).read(text),
        source="stdin" if source == "-" else source,
        general_remarks=(clocks, *crontab.GENERAL_REMARKS),
        as_json=as_json,
    )


@imports.command(name="celery-beat")
def from_celery_beat(source: CeleryApp, /, *, as_json: AsJson = False) -> None:
    """Convert the beat schedule of a Celery app; SOURCE is module:app or file.py:app."""
    from trax.cli.importing import celery_beat
    from trax.cli.loading import load_object

    app = load_object(source)
    _show(
        lambda now: celery_beat.read_beat(app, now),
        source=source,
        general_remarks=celery_beat.GENERAL_REMARKS,
        as_json=as_json,
    )


@imports.command(name="apscheduler")
def from_apscheduler(
    source: JobStore, /, *, table: Table = "apscheduler_jobs", trust: Trust = False, as_json: AsJson = False
) -> None:
    """Convert an APScheduler 3 job store; SOURCE is its database URL or SQLite file."""
    from trax.cli.importing import apscheduler
    from trax.store.foreign_jobs import apscheduler_jobs

    url = source if "://" in source else f"sqlite:///{source}"
    stored = apscheduler_jobs(url, table)
    _show(
        lambda now: apscheduler.read_jobs(stored, now, trust=trust),
        source=f"the table {table}",
        general_remarks=apscheduler.general_remarks(trust=trust),
        as_json=as_json,
    )


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        why = error.strerror if isinstance(error, OSError) else "invalid name"
        raise DefinitionError(
            f"file {format_value(str(file))} cannot be read ({why}); give a crontab file, or - for stdin"
        ) from None


def _show(
    read: Callable[[datetime], Iterable[ImportedJob]],
    *,
    source: str,
    general_remarks: Sequence[str],
    as_json: bool,
) -> None:
    from trax.cli.importing import output
    from trax.cli.importing.foreign import compare, with_unique_ids
    from trax.cli.importing.output import python_module

    now = utc_now()
    found = with_unique_ids(read(now))
    results = compare(found, now)
    python = python_module(found, source)
    if as_json:
        manifests: list[dict[str, Any]] = [output.document(result) for result in results]
        show_json({"manifests": manifests, "remarks": general_remarks, "python": python})
        return
    say(python.rstrip())
    show_rows(output.HEADER, output.rows(results), to=sys.stderr)
    for line in (*output.lines(results), "in general:", *(f"  - {remark}" for remark in general_remarks)):
        sys.stderr.write(f"{line}\n")
