"""Numbers and sentences of the demo report, from its records. No I/O."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING, Final

from rich.table import Table

from trax import DeadLetter, Metadata, WorkQueueEntry
from trax.cli.demo.company import EMAILS, EMAILS_AT_ONCE, LETTERS, OUTAGE
from trax.cli.output import single_line
from trax.errors import count_noun
from trax.records.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trax.cli.demo.company import Company


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Runs and entries since a moment, the number still queued, and the open dead letters."""

    since: datetime
    until: datetime
    runs: Sequence[Metadata]
    entries: Sequence[WorkQueueEntry]
    waiting: int
    letters: Sequence[DeadLetter]

    def runs_in(self, group: str) -> list[Metadata]:
        return [run for run in self.runs if run.group == group]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """Counts for one train. Times are medians in seconds; None if nothing was measured."""

    train: str
    runs: int
    succeeded: int
    failed: int
    put_back: int
    retried: int
    waited: float | None
    took: float | None


def by_train(records: Records) -> list[TrainReport]:
    """One report per train, in order of the first run."""
    queued_at = {entry.external_id: entry.created_at for entry in records.entries}
    runs: dict[str, list[Metadata]] = defaultdict(list)
    for run in sorted(records.runs, key=lambda run: run.id):
        runs[run.train].append(run)
    return [_report(train, own, queued_at) for train, own in runs.items()]


def most_at_once(runs: Sequence[Metadata]) -> int:
    """The highest number of these runs at the same time; an end counts before a start at the same moment."""
    started = [(run.started_at, 1) for run in runs if run.started_at]
    ended = [(run.ended_at, -1) for run in runs if run.started_at and run.ended_at]
    return max(accumulate(change for _, change in sorted([*started, *ended])), default=0)


def count_scheduled(records: Records, manifest: str, start: datetime, end: datetime) -> int:
    return sum(entry.manifest == manifest and start <= entry.created_at < end for entry in records.entries)


def _report(train: str, runs: Sequence[Metadata], queued_at: Mapping[str, datetime]) -> TrainReport:
    states = [run.state for run in runs]
    return TrainReport(
        train=train,
        runs=len(runs),
        succeeded=states.count(State.COMPLETED),
        failed=states.count(State.FAILED),
        put_back=states.count(State.CANCELLED),
        retried=sum(run.attempt > 1 for run in runs),
        waited=_median(_waits(runs, queued_at)),
        took=_median(_lengths(runs)),
    )


def _waits(runs: Sequence[Metadata], queued_at: Mapping[str, datetime]) -> list[float]:
    """Seconds from enqueue to the first start; delays between attempts do not count."""
    first = {run.external_id: run.started_at for run in reversed(runs) if run.attempt == 1 and run.started_at}
    return [(first[name] - queued_at[name]).total_seconds() for name in first if name in queued_at]


def _lengths(runs: Sequence[Metadata]) -> list[float]:
    return [
        (run.ended_at - run.started_at).total_seconds() for run in runs if run.started_at and run.ended_at
    ]


def _median(seconds: Sequence[float]) -> float | None:
    return median(seconds) if seconds else None


COLUMNS: Final = ("train", "runs", "succeeded", "failed", "retried", "waited", "took")


def introduction(company: Company) -> Iterator[tuple[str, str]]:
    """What each train demonstrates."""
    closed = f"{_clock(company.closed_from)} to {_clock(company.closed_until)} UTC"
    yield "extract_sales", "every 5 s; after its success transform_sales runs, then publish_report"
    yield (
        "write_newsletter",
        f"enqueues {LETTERS} emails; the limit of their group is {EMAILS_AT_ONCE} at once",
    )
    yield "answer_customer", "every 2 s, in a group of higher priority: it overtakes the emails"
    yield "sync_warehouse", f"fails {OUTAGE} times in a row, is retried, and succeeds"
    yield "convert_prices", f"fails while {company.rates} is missing, and becomes a dead letter"
    yield "check_stock", "activates order_goods, a dormant dependent, if something has run low"
    yield "back_up", f"every 2 s, but not from {closed}: an excluded time window"
    yield "roast_beans", "takes 3 s and reports progress"


def table(records: Records) -> Table:
    """One row per train."""
    reports = by_train(records)
    has_put_back = any(report.put_back for report in reports)
    result = Table(box=None, pad_edge=False, header_style="bold")
    for name in (*COLUMNS, *(["put back"] if has_put_back else [])):
        result.add_column(name, justify="left" if name == "train" else "right", no_wrap=True)
    for report in reports:
        result.add_row(*_cells(report), *([str(report.put_back)] if has_put_back else []))
    return result


def summary(records: Records, company: Company) -> Iterator[str]:
    """What the numbers show, one sentence each."""
    sent = records.runs_in(EMAILS)
    if sent:
        yield f"At most {most_at_once(sent)} emails were sent at once; their limit is {EMAILS_AT_ONCE}."
    yield from _priority_sentence(records)
    yield from _exclusion_sentence(records, company)
    if records.waiting:
        entries = count_noun(records.waiting, "entry is", "entries are")
        yield f"{entries} still queued; the next `trax demo` continues with them."


def dead_letter_steps(dead_letter: DeadLetter, company: Company, url: str) -> Iterator[tuple[str, str]]:
    """A dead letter, and the commands to resolve it."""
    to = f"--database-url {shlex.quote(url)}"
    yield "", single_line(f"{dead_letter.train} failed: {dead_letter.reason}")
    yield "show it", f"trax dead-letters show {dead_letter.id} {to}"
    yield "fix the cause", f"echo 'EUR,1.00' > {shlex.quote(str(company.rates))}"
    yield "requeue it", f"trax dead-letters requeue {dead_letter.id} {to}"
    yield "run it", f"trax demo --folder {shlex.quote(str(company.rates.parent))}"


def _priority_sentence(records: Records) -> Iterator[str]:
    waits = {report.train: report.waited for report in by_train(records)}
    urgent, bulk = waits.get("answer_customer"), waits.get("send_email")
    if urgent is not None and bulk is not None:
        yield f"answer_customer has priority: it waited {_seconds(urgent)}, send_email {_seconds(bulk)}."


def _exclusion_sentence(records: Records, company: Company) -> Iterator[str]:
    start, end = company.closed_from, company.closed_until
    if records.until < end:
        return
    count = count_scheduled(records, "back-up", start, end)
    yield f"From {_clock(start)} to {_clock(end)} UTC, the excluded window, back_up was due {count} times."


def _cells(report: TrainReport) -> tuple[str, ...]:
    counts = (report.runs, report.succeeded, report.failed, report.retried)
    return (report.train, *map(str, counts), _seconds(report.waited), _seconds(report.took))


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}"
