"""What operators' commands share: they need a database, and not the app's code."""

from __future__ import annotations

import asyncio
import getpass
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from cyclopts import CycloptsError, Parameter, validators

from trax.bounds import LARGEST_ID, LONGEST_SECONDS
from trax.cli import db
from trax.errors import SchemaNotMigrated
from trax.host.acting import acting
from trax.host.app import Trax
from trax.host.checks import LONGEST_PAGE
from trax.records.audit import Actor, Via
from trax.records.states import DeadLetterStatus, Origin, QueueStatus, ScheduleType, State
from trax.store.url import VARIABLE, chosen_url, has_no_file_yet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")

NOBODY: Final = "unknown"

DatabaseUrl = db.DatabaseUrl
AsJson = Annotated[bool, Parameter("--json", negative=(), help="One JSON document.")]
Yes = Annotated[bool, Parameter("--yes", negative=(), help="Do it without asking.")]
Everything = Annotated[bool, Parameter("--all", negative=(), help="All of them.")]
CodeOf = Annotated[
    str | None, Parameter("--app", help="module:app or file.py:app, which has its own database.")
]
Reason = Annotated[str | None, Parameter(help="Why, for the audit.")]
A_PAGE: Final = validators.Number(gte=1, lte=LONGEST_PAGE)
Limit = Annotated[int, Parameter(help="How many at most.", validator=A_PAGE)]
Delay = Annotated[
    float | None,
    Parameter(help="Seconds from now.", validator=validators.Number(gte=0, lte=LONGEST_SECONDS)),
]
AN_ID: Final = validators.Number(gte=0, lte=LARGEST_ID)
Before = Annotated[
    int | None, Parameter(help="Read on: the id of the last one already seen.", validator=AN_ID)
]
After = Annotated[str | None, Parameter(help="Read on: the last one already seen.")]
Id = Annotated[int, Parameter(validator=AN_ID)]
Ids = Annotated[int, Parameter(name="IDS", validator=AN_ID)]
RunState = Annotated[State | None, Parameter(help="Only those.", name_transform=str.lower)]
EntryStatus = Annotated[QueueStatus | None, Parameter(help="Only those.")]
EntryOrigin = Annotated[Origin | None, Parameter(help="Only those asked for by this.")]
LetterStatus = Annotated[DeadLetterStatus | None, Parameter(help="Only those.", name_transform=str.lower)]
KindOfSchedule = Annotated[
    ScheduleType | None, Parameter("--schedule-type", help="Only those.", name_transform=str.lower)
]


def operate(
    database_url: str | None,
    verb: Callable[[Trax], Awaitable[T]],
    *,
    app: str | None = None,
    reason: str | None = None,
) -> T:
    """Do one thing with the database that was named, or with the one of an app.

    What it changes is written down in the name of who is logged in at this machine.
    """
    operated = bare_app(database_url) if app is None else _loaded(app, database_url)
    try:
        with acting(Actor(_user(), Via.CLI), reason=reason):
            return asyncio.run(_awaited(verb, operated))
    finally:
        operated.close()


def misuse(message: str, *command: str) -> CycloptsError:
    """What is wrong with a command that can be read and makes no sense."""
    return CycloptsError(message, command_chain=command)


def confirm(what: str, *, yes: bool, command: Sequence[str]) -> bool:
    """Ask before much is changed at once. Who cannot be asked has to say it beforehand."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise misuse(f"{what}? Nobody is there to ask; say --yes.", *command)
    sys.stderr.write(f"{what}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in {"y", "yes"}:
        return True
    sys.stderr.write("trax: nothing was done\n")
    return False


def _user() -> str:
    try:
        return getpass.getuser() or NOBODY
    except (KeyError, OSError):  # a process need not have a name
        return NOBODY


async def _awaited(verb: Callable[[Trax], Awaitable[T]], app: Trax) -> T:
    return await verb(app)


def bare_app(database_url: str | None) -> Trax:
    """An app without trains. It changes no tables: that is for servers and `trax db migrate`."""
    address = chosen_url(database_url)
    if has_no_file_yet(address):
        raise SchemaNotMigrated(
            f"there is no database {address} yet; start the app, run `trax db migrate`, or name another "
            f"with --database-url or ${VARIABLE}"
        )
    settings: dict[str, Any] = {"skip_migrations": True}
    return Trax(address, **settings)


def _loaded(app: str, database_url: str | None) -> Trax:
    from trax.cli.loading import load_app

    if database_url is not None:
        raise misuse("Say either --app or --database-url: an app has its own database.")
    return load_app(app)
