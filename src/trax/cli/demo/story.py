"""The text of the demo: what its trains show, and what the records say afterwards."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from rich.table import Table

from trax.cli.demo.company import EMAILS, EMAILS_AT_ONCE, LETTERS, OUTAGE
from trax.cli.demo.report import by_train, count_scheduled, most_at_once
from trax.cli.showing import single_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from trax import DeadLetter
    from trax.cli.demo.company import Company
    from trax.cli.demo.report import Records, TrainReport

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
    yield from _excluded_hours(records, company)
    if records.waiting:
        entries = "1 entry is" if records.waiting == 1 else f"{records.waiting} entries are"
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


def _excluded_hours(records: Records, company: Company) -> Iterator[str]:
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
