"""`trax plan`: what starting this code would change in this database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from trax.cli.loading import load_app
from trax.cli.operating import AsJson  # noqa: TC001 - cyclopts reads it
from trax.cli.serving import AppName  # noqa: TC001
from trax.cli.showing import say, show_json
from trax.host.planning import planned_start

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trax.admin.planning import Change
    from trax.schedule.preview import Preview
    from trax.store.seeding import Belongings

CHANGES: Final = 2
MARKS: Final = {
    "add": "+",
    "return": "+",
    "change": "~",
    "rename": "~",
    "retire": "-",
    "remove": "-",
    "keep": "=",
}
REMARKS: Final = {
    "retire": ": retired, its history stays",
    "return": ": back from retirement",
    "rename": ": renamed, its history comes along",
}


def plan(app: AppName = None, /, *, as_json: AsJson = False) -> int:
    """Show what starting an app would change, and change nothing; exit with 0 if nothing would, else with 2.

    Manifests and groups that are added (+), changed or renamed (~), retired or removed (-), the next runs of
    what is new, what is touched by a retirement, and what operators have set that code leaves alone (=).
    """
    changes = asyncio.run(planned_start(load_app(app).parts))
    made = [one for one in changes if one.verb != "keep"]
    if as_json:
        show_json({"changes": made, "kept": [one for one in changes if one.verb == "keep"]})
    else:
        for line in _lines(changes):
            say(line)
        if not made:
            say("nothing would change")
    return CHANGES if made else 0


def _lines(changes: Sequence[Change]) -> Iterator[str]:
    for one in changes:
        yield f"{MARKS[one.verb]} {one.kind} {one.name}{REMARKS.get(one.verb, '')}"
        if one.touches is not None:
            yield from (f"    {line}" for line in _touched(one.touches))
        if one.once_stopped:
            servers = ", ".join(one.once_stopped)
            yield f"    once these servers, which declare other manifests, have stopped: {servers}"
        for each in one.differences:
            to = "stays, as an operator has set it" if one.verb == "keep" else f"-> {each.new!r}"
            yield f"    {each.name}: {each.old!r} {to}"
        for run in one.next_runs:
            yield f"    {_run(run)}"


def _touched(found: Belongings) -> Iterator[str]:
    """What there is of a manifest that is retired, and what happens to it."""
    if found.queued:
        yield f"queued entries that are withdrawn: {found.queued}"
    if found.active:
        yield f"runs that go on until they end: {found.active}"
    if found.dead_letters:
        yield f"dead letters that keep waiting: {found.dead_letters}"
    if found.dependents:
        yield f"manifests that depend on it, and will rest: {', '.join(found.dependents)}"


def _run(run: Preview) -> str:
    here = "" if run.local.tzname() == "UTC" else f" = {run.local:%Y-%m-%d %H:%M:%S %Z}"
    remark = f" ({run.remark})" if run.remark else ""
    return f"runs at {run.at:%Y-%m-%d %H:%M:%S} UTC{here}{remark}"
