"""Print the manifests as a plan: one line each, then remarks and differing run times."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from trax.cli.importing.foreign import NO_LIMIT
from trax.cli.showing import single_line
from trax.records.when import Cron, Interval
from trax.schedule.describe import explain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trax.cli.importing.comparing import Comparison

HEADER = ("manifest", "old schedule", "Trax schedule", "next ten", "first run")


def rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    return [
        (
            each.job.external_id,
            single_line(each.job.schedule_text),
            schedule_text(each),
            each.verdict,
            _format_moment(each.ours[0]) if each.ours else "-",
        )
        for each in comparisons
    ]


def lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Remarks, and the run times of both sides if they differ."""
    for one in comparisons:
        if not one.job.remarks and (one.agrees or one.job.theirs is None):
            continue
        yield f"{one.job.external_id}:"
        yield from (f"  - {single_line(remark)}" for remark in one.job.remarks)
        if one.job.theirs is not None and not one.agrees:
            yield from _side_by_side(one)


def document(comparison: Comparison) -> dict[str, Any]:
    """All values, for JSON."""
    return {
        "external_id": comparison.job.external_id,
        "task": comparison.job.task,
        "written": comparison.job.schedule_text,
        "schedule": schedule_text(comparison),
        "input": comparison.job.input,
        "options": dict(comparison.job.options),
        "timeout": None if comparison.job.timeout == NO_LIMIT else comparison.job.timeout,
        "theirs": comparison.job.theirs,
        "ours": comparison.ours,
        "agrees": comparison.agrees,
        "verdict": comparison.verdict,
        "remarks": comparison.job.remarks,
    }


def schedule_text(comparison: Comparison) -> str:
    match comparison.job.when:
        case Cron() | Interval() as schedule:
            return explain(schedule)
        case datetime() as moment:
            return f"once, at {_format_moment(moment)}"
        case None:
            return "on demand"


def _side_by_side(comparison: Comparison) -> Iterator[str]:
    theirs = comparison.job.theirs or ()
    yield f"    {'old':20}  Trax"
    for other, mine in zip_longest(theirs, comparison.ours):
        yield f"    {_format_moment(other):20}  {_format_moment(mine)}{'' if other == mine else '  differs'}"


def _format_moment(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
