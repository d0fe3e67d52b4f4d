"""`trax lint`: what is wrong with an app, and what it could not read of what waits to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators
from rich.console import Console
from rich.status import Status

from trax.bounds import LARGEST_COUNT
from trax.cli.loading import load_app
from trax.cli.operating import AsJson  # noqa: TC001 - cyclopts reads it
from trax.cli.serving import AppName  # noqa: TC001
from trax.cli.showing import say, show_json
from trax.clock import utc_now
from trax.host.lint_queued import lint_queued
from trax.host.linting import lint as linted

if TYPE_CHECKING:
    from trax.host.lint_queued import Looked
    from trax.host.parts import Parts

Queued = Annotated[
    bool,
    Parameter(negative=(), help="Also read the inputs that wait to run, and say which this code cannot."),
]
Most = Annotated[
    int | None,
    Parameter(
        help="Read so many of them, the oldest; else all.",
        validator=validators.Number(gte=1, lte=LARGEST_COUNT),
    ),
]


def lint(
    app: AppName = None, /, *, queued: Queued = False, most: Most = None, as_json: AsJson = False
) -> int:
    """Check an app without a database; exit with 1 if there is anything to look at.

    Loading it checks its routes, names and inputs already. This adds what makes no sense as a whole, a line
    each. With --queued it also reads what waits in the database, and changes nothing there: ask before a
    deploy which of it the new code could not read.
    """
    parts = load_app(app).parts
    found, looked = linted(parts, now=utc_now()), _looked(parts, most) if queued else None
    unreadable = looked.unreadable if looked else []
    if as_json:
        show_json({"problems": found} | ({"queued": looked} if looked else {}))
        return 1 if found or unreadable else 0
    for line in [*found, *map(str, unreadable)] or ["nothing to complain about"]:
        say(line)
    if looked is not None:
        what = "all" if looked.is_all else "the first"
        say(f"read {what} {looked.count} of the inputs that wait")
    return 1 if found or unreadable else 0


def _looked(parts: Parts, most: int | None) -> Looked:
    """With a line on the terminal that tells how far it is; in a pipe nobody would read it."""
    terminal = Console(stderr=True)
    with Status("reading what waits", console=terminal) as status:
        return lint_queued(
            parts, most=most, on_progress=lambda count: status.update(f"read {count} of what waits")
        )
