"""`trax plan`: show what starting an app would change; `trax lint`: check an app for mistakes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from trax.bounds import LARGEST_COUNT
from trax.cli.operators import AsJson  # noqa: TC001 - cyclopts reads it
from trax.cli.options import AppName  # noqa: TC001 - cyclopts reads it
from trax.cli.output import say, show_json
from trax.clock import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trax.inspect.lint import QueuedLintResult
    from trax.inspect.plan import PlannedChange
    from trax.schedule.preview import Preview
    from trax.store.manifests.manifest_seed import ManifestUsage
    from trax.worker.app_context import AppContext


WOULD_CHANGE: Final = 2
MARKS: Final = {
    "add": "+",
    "return": "+",
    "change": "~",
    "rename": "~",
    "retire": "-",
    "keep": "=",
}
REMARKS: Final = {
    "retire": ": retired; its history stays",
    "return": ": back from retirement",
    "rename": ": renamed; its history is kept",
}


def plan(app: AppName = None, /, *, as_json: AsJson = False) -> int:
    """Show what starting an app would change in its database; exit with 0 if nothing, otherwise with 2.

    Changes nothing. It lists manifests and groups: added (+), changed or renamed (~), retired (-), and
    values set by operators that stay (=). New schedules come with their next runs, retired ones with what
    happens to their entries, runs and dead letters.
    """
    from trax.cli.loading import load_app
    from trax.inspect.plan import plan_start

    changes = asyncio.run(plan_start(load_app(app).context))
    made = [change for change in changes if change.verb != "keep"]
    if as_json:
        show_json({"changes": made, "kept": [change for change in changes if change.verb == "keep"]})
    else:
        for line in _lines(changes):
            say(line)
        if not made:
            say("nothing would change")
    return WOULD_CHANGE if made else 0


def _lines(changes: Sequence[PlannedChange]) -> Iterator[str]:
    for one in changes:
        yield f"{MARKS[one.verb]} {one.kind} {one.name}{REMARKS.get(one.verb, '')}"
        if one.touches is not None:
            yield from (f"    {line}" for line in _retirement_effects(one.touches))
        if one.once_stopped:
            servers = ", ".join(one.once_stopped)
            yield f"    after these servers, which declare other manifests, have stopped: {servers}"
        for each in one.differences:
            to = "stays; set by an operator" if one.verb == "keep" else f"-> {each.new!r}"
            yield f"    {each.name}: {each.old!r} {to}"
        for run in one.next_runs:
            yield f"    {_run(run)}"


def _retirement_effects(belongings: ManifestUsage) -> Iterator[str]:
    """What happens to the entries, runs and dead letters of a retired manifest."""
    if belongings.queued:
        yield f"queued entries to cancel: {belongings.queued}"
    if belongings.active:
        yield f"active runs that continue: {belongings.active}"
    if belongings.dead_letters:
        yield f"dead letters that stay: {belongings.dead_letters}"
    if belongings.dependents:
        yield f"dependent manifests that will no longer run: {', '.join(belongings.dependents)}"


def _run(run: Preview) -> str:
    local = "" if run.local.tzname() == "UTC" else f" = {run.local:%Y-%m-%d %H:%M:%S %Z}"
    remark = f" ({run.remark})" if run.remark else ""
    return f"runs at {run.at:%Y-%m-%d %H:%M:%S} UTC{local}{remark}"


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
    from trax.cli.loading import load_app
    from trax.inspect.lint import lint as find_problems

    context = load_app(app).context
    found, inputs = find_problems(context, now=utc_now()), _lint_queued(context, most) if queued else None
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


def _lint_queued(context: AppContext, most: int | None) -> QueuedLintResult:
    """Lint queued inputs, with progress on the terminal if there is one."""
    from rich.console import Console
    from rich.status import Status

    from trax.inspect.lint import lint_queued

    terminal = Console(stderr=True)
    with Status("reading queued inputs", console=terminal) as status:
        return lint_queued(
            context, limit=most, on_progress=lambda count: status.update(f"read {count} queued inputs")
        )
