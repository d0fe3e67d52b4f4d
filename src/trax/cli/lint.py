"""`trax lint`: check an app for mistakes, and queued inputs for ones its code cannot read."""

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
    from trax.host.lint_queued import QueuedLintResult
    from trax.host.parts import Parts

Queued = Annotated[
    bool,
    Parameter(negative=(), help="Also read the queued inputs, and report those that this code cannot read."),
]
Most = Annotated[
    int | None,
    Parameter(
        help="Read at most this many, the oldest first; default: all.",
        validator=validators.Number(gte=1, lte=LARGEST_COUNT),
    ),
]


def lint(
    app: AppName = None, /, *, queued: Queued = False, most: Most = None, as_json: AsJson = False
) -> int:
    """Check an app for mistakes, without a database; exit with 1 if there is a finding.

    Loading an app validates its routes, names and inputs. This also checks the schedules as a whole, and
    prints one line for each finding. With --queued it reads the inputs queued in the database and changes
    nothing: run it before a deploy to find the inputs that the new code cannot read.
    """
    parts = load_app(app).parts
    found, inputs = linted(parts, now=utc_now()), _lint_queued(parts, most) if queued else None
    unreadable = inputs.unreadable if inputs else []
    if as_json:
        show_json({"problems": found} | ({"queued": inputs} if inputs else {}))
        return 1 if found or unreadable else 0
    for line in [*found, *map(str, unreadable)] or ["no findings"]:
        say(line)
    if inputs is not None:
        what = "all" if inputs.is_all else "the first"
        say(f"read {what} {inputs.count} queued inputs")
    return 1 if found or unreadable else 0


def _lint_queued(parts: Parts, most: int | None) -> QueuedLintResult:
    """Lint queued inputs, with progress on the terminal if there is one."""
    terminal = Console(stderr=True)
    with Status("reading queued inputs", console=terminal) as status:
        return lint_queued(
            parts, limit=most, on_progress=lambda count: status.update(f"read {count} queued inputs")
        )
