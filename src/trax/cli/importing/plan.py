"""The manifests as a plan: a line each, then what differs, moment by moment and in words."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from trax.cli.importing.foreign import NO_LIMIT
from trax.cli.showing import in_line
from trax.records.when import Cron, Interval
from trax.schedule.describe import explained

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trax.cli.importing.comparing import Compared

HEADER = ("manifest", "there", "here", "next ten", "first run")


def rows(found: Sequence[Compared]) -> list[tuple[str, ...]]:
    return [
        (
            one.foreign.external_id,
            in_line(one.foreign.written),
            in_words(one),
            one.verdict,
            _shown(one.ours[0]) if one.ours else "-",
        )
        for one in found
    ]


def lines(found: Sequence[Compared]) -> Iterator[str]:
    """What there is to say of each, and both sides where they do not agree."""
    for one in found:
        if not one.foreign.remarks and (one.agrees or one.foreign.theirs is None):
            continue
        yield f"{one.foreign.external_id}:"
        yield from (f"  - {in_line(remark)}" for remark in one.foreign.remarks)
        if one.foreign.theirs is not None and not one.agrees:
            yield from _side_by_side(one)


def document(one: Compared) -> dict[str, Any]:
    """All of it, for a program."""
    return {
        "external_id": one.foreign.external_id,
        "task": one.foreign.task,
        "written": one.foreign.written,
        "schedule": in_words(one),
        "input": one.foreign.input,
        "options": dict(one.foreign.options),
        "timeout": None if one.foreign.timeout == NO_LIMIT else one.foreign.timeout,
        "theirs": one.foreign.theirs,
        "ours": one.ours,
        "agrees": one.agrees,
        "verdict": one.verdict,
        "remarks": one.foreign.remarks,
    }


def in_words(one: Compared) -> str:
    match one.foreign.when:
        case Cron() | Interval() as schedule:
            return explained(schedule)
        case datetime() as moment:
            return f"once, at {_shown(moment)}"
        case None:
            return "on demand"


def _side_by_side(one: Compared) -> Iterator[str]:
    theirs = one.foreign.theirs or ()
    yield f"    {'there':20}  here"
    for other, mine in zip_longest(theirs, one.ours):
        yield f"    {_shown(other):20}  {_shown(mine)}{'' if other == mine else '  differs'}"


def _shown(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
