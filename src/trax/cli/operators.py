"""Shared options and helpers of operator commands, which need a database but not the app's code."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from cyclopts import CycloptsError, Parameter, Token, validators

from trax.bounds import LARGEST_ID, LONGEST_PAGE, is_duration
from trax.cli.output import say, show_json
from trax.clock import DURATION_FORMS, parse_duration
from trax.errors import SchemaNotMigrated
from trax.store.url import URL_VARIABLE, choose_url, has_no_file_yet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from trax.app.app import Trax
    from trax.records.listing import ChangedIds

T = TypeVar("T")

UNKNOWN_USER: Final = "unknown"

DatabaseUrl = Annotated[
    str | None, Parameter(help=f"The database; default: ${URL_VARIABLE}, or sqlite:///trax.db.")
]
AsJson = Annotated[bool, Parameter("--json", negative=(), help="One JSON document.")]
Yes = Annotated[bool, Parameter("--yes", negative=(), help="Do not ask for confirmation.")]
Everything = Annotated[bool, Parameter("--all", negative=(), help="Apply to all.")]
AppOption = Annotated[
    str | None, Parameter("--app", help="Load the app, module:app or file.py:app, and use its database.")
]
Reason = Annotated[str | None, Parameter(help="The reason, recorded in the audit log.")]
PAGE_RANGE: Final = validators.Number(gte=1, lte=LONGEST_PAGE)
Limit = Annotated[int, Parameter(help="At most this many.", validator=PAGE_RANGE)]

CountOnly = Annotated[
    bool, Parameter("--count", negative=(), help="Print only how many there are, on all pages.")
]


def parse_delay(_type: object, tokens: Sequence[Token]) -> timedelta:
    try:
        delay = parse_duration(tokens[0].value)
    except ValueError as error:
        raise ValueError(f"{error}.") from None
    if not is_duration(delay):
        raise ValueError("it must be from 0 s to 68 years.")
    return delay


Delay = Annotated[
    timedelta | None, Parameter(help=f"Time from now, such as {DURATION_FORMS}.", converter=parse_delay)
]


TimeLimit = Annotated[
    timedelta | None, Parameter(help=f"How long it may run, such as {DURATION_FORMS}.", converter=parse_delay)
]


def _parse_at(_type: object, tokens: Sequence[Token]) -> datetime:
    try:
        return _moment_in_utc(tokens[0].value.strip())
    except (ValueError, OverflowError):
        raise ValueError("expected a time such as 2027-03-01T12:00.") from None


def _moment_in_utc(text: str) -> datetime:
    """A time such as 2027-03-01T12:00, in UTC if it names no zone."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


At = Annotated[
    datetime | None,
    Parameter(help="Run at this time, in UTC if no zone is given: 2027-03-01T12:00.", converter=_parse_at),
]


def parse_moment(_type: object, tokens: Sequence[Token]) -> datetime | timedelta:
    """A time, or how long ago."""
    text = tokens[0].value.strip()
    try:
        return _moment_in_utc(text) if "-" in text[1:] else parse_duration(text)
    except (ValueError, OverflowError):
        raise ValueError(
            f"expected a time such as 2027-03-01T12:00, or how long ago, such as {DURATION_FORMS}."
        ) from None


def check_duration(_type: object, value: datetime | timedelta | None) -> None:
    if isinstance(value, timedelta) and not is_duration(value):
        raise ValueError("It must be from 0 s to 68 years.")


ID_RANGE: Final = validators.Number(gte=0, lte=LARGEST_ID)
After = Annotated[int | None, Parameter(help="Only higher ids: newer ones.", validator=ID_RANGE)]
Id = Annotated[int, Parameter(help="Its id.", validator=ID_RANGE)]
Ids = Annotated[int, Parameter(name="IDS", help="Their ids.", validator=ID_RANGE)]
ExternalId = Annotated[str, Parameter(help="The external id of the manifest.")]
GroupName = Annotated[str, Parameter(help="The name of the group.")]


def operate(
    database_url: str | None,
    action: Callable[[Trax], Awaitable[T]],
    *,
    app: str | None = None,
    reason: str | None = None,
) -> T:
    """Run one operation on the named database, or on that of an app.

    Changes are audited under the user of this process.
    """
    import asyncio

    operated = bare_app(database_url) if app is None else _load_app(app, database_url)
    try:
        with acting_as_user(reason):
            return asyncio.run(_call(action, operated))
    finally:
        operated.close()


async def moment_of(app: Trax, value: datetime | timedelta | None) -> datetime | None:
    """A duration is so long before now, by the clock of the database."""
    if not isinstance(value, timedelta):
        return value
    store = await app.context.store.open()
    return await store.ask(store.now) - value


def report_cancelled(label: str, cancelled: ChangedIds, ids: Sequence[int] | None, *, as_json: bool) -> int:
    """Print which ids were cancelled; exit code 1 if some of the given ones were not."""
    skipped = 0 if ids is None else len(set(ids)) - len(cancelled)
    if as_json:
        show_json({"cancelled": list(cancelled), "skipped": skipped})
    else:
        of = "" if ids is None else f" of {len(set(ids))}"
        which = f" ({', '.join(map(str, cancelled))})" if cancelled else ""
        say(f"{label}: {len(cancelled)}{of}{which}")
    return 1 if skipped else 0


def usage_error(message: str, *command: str) -> CycloptsError:
    """An error for options that are valid alone but not together."""
    return CycloptsError(message, command_chain=command)


def confirm(question: str, *, yes: bool, command: Sequence[str]) -> bool:
    """Ask for confirmation on the terminal; without a terminal, `--yes` is required."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise usage_error(f"{question}? There is no terminal to confirm on; give --yes.", *command)
    sys.stderr.write(f"{question}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in {"y", "yes"}:
        return True
    sys.stderr.write("trax: cancelled; nothing was changed\n")
    return False


@contextmanager
def acting_as_user(reason: str | None) -> Generator[None]:
    """Record changes in the audit under the user of this process, as the system knows it."""
    from trax.engine.actor import acting
    from trax.records.audit import Actor, Via

    with acting(Actor(_user(), Via.CLI), reason=reason):
        yield


def _user() -> str:
    """The name of the user id. Variables such as $LOGNAME are not read: anyone can set them."""
    try:
        pwd: Any = import_module("pwd")
    except ImportError:  # not available on every system
        return _login_name()
    user_id = os.getuid()
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:  # the user id may have no name
        return f"uid {user_id}"


def _login_name() -> str:
    try:
        return os.getlogin()
    except OSError:
        return UNKNOWN_USER


async def _call(action: Callable[[Trax], Awaitable[T]], app: Trax) -> T:
    return await action(app)


def bare_app(database_url: str | None) -> Trax:
    """An app without trains. It does not migrate: servers and `trax db migrate` do."""
    from trax.app.app import Trax

    settings: dict[str, Any] = {"skip_migrations": True}
    return Trax(require_database(database_url), **settings)


def require_database(database_url: str | None) -> str:
    """The URL of the database; raises an error if it is a file that does not exist."""
    address = choose_url(database_url)
    if has_no_file_yet(address):
        raise SchemaNotMigrated(
            f"database {address} does not exist yet; start the app, run `trax db migrate`, or choose another "
            f"with --database-url or ${URL_VARIABLE}"
        )
    return address


def _load_app(app: str, database_url: str | None) -> Trax:
    from trax.cli.loading import load_app

    if database_url is not None:
        raise usage_error("Give either --app or --database-url: an app has its own database.")
    return load_app(app)
