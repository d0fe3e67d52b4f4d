"""What is told before and after: what the company does, and what its records say came of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from rich.table import Table

from trax.cli.demo.company import EMAILS, EMAILS_AT_ONCE, LETTERS, OUTAGE
from trax.cli.demo.report import by_train, most_at_once, scheduled_between
from trax.cli.showing import in_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from trax import DeadLetter
    from trax.cli.demo.company import Company
    from trax.cli.demo.report import Records, TrainReport

COLUMNS: Final = ("train", "runs", "succeeded", "failed", "retried", "waited", "took")


def prologue(company: Company) -> Iterator[tuple[str, str]]:
    """What to look for, by the trains that show it."""
    closed = f"{_clock(company.closed_from)} to {_clock(company.closed_until)} UTC"
    yield "extract_sales", "every 5 s; when it has succeeded transform_sales runs, and then publish_report"
    yield "write_newsletter", f"queues {LETTERS} emails; the limit of their group is {EMAILS_AT_ONCE} at once"
    yield "answer_customer", "every 2 s, in a group of higher priority: it passes the emails in the line"
    yield "sync_warehouse", f"fails {OUTAGE} times in a row, is tried again, and succeeds"
    yield "convert_prices", f"fails for good as long as {company.rates} is missing: a dead letter"
    yield "check_stock", "wakes order_goods, which sleeps until something has run low"
    yield "back_up", f"every 2 s, but not from {closed}: closed hours"
    yield "roast_beans", "takes 3 s and says how far it has come"


def table(records: Records) -> Table:
    """One line a train."""
    reports = by_train(records)
    has_put_back = any(one.put_back for one in reports)
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in (*COLUMNS, *(["put back"] if has_put_back else [])):
        made.add_column(name, justify="left" if name == "train" else "right", no_wrap=True)
    for one in reports:
        made.add_row(*_cells(one), *([str(one.put_back)] if has_put_back else []))
    return made


def epilogue(records: Records, company: Company) -> Iterator[str]:
    """What the numbers show, a sentence each."""
    sent = records.runs_in(EMAILS)
    if sent:
        yield f"At most {most_at_once(sent)} emails were sent at once; their limit is {EMAILS_AT_ONCE}."
    yield from _overtaking(records)
    yield from _closed_hours(records, company)
    if records.waiting:
        still = "1 entry still waits" if records.waiting == 1 else f"{records.waiting} entries still wait"
        yield f"{still} in the queue; the next `trax demo` goes on from there."


def letter(one: DeadLetter, company: Company, url: str) -> Iterator[tuple[str, str]]:
    """A dead letter and how a person deals with it: what to type, and what it does."""
    to = f"--database-url {shlex.quote(url)}"
    yield "", in_line(f"{one.train} gave up: {one.reason}")
    yield "see why", f"trax dead-letters show {one.id} {to}"
    yield "mend the cause", f"echo 'EUR,1.00' > {shlex.quote(str(company.rates))}"
    yield "queue it again", f"trax dead-letters requeue {one.id} {to}"
    yield "and let it run", f"trax demo --folder {shlex.quote(str(company.rates.parent))}"


def _overtaking(records: Records) -> Iterator[str]:
    waits = {one.train: one.waited for one in by_train(records)}
    urgent, flood = waits.get("answer_customer"), waits.get("send_email")
    if urgent is not None and flood is not None:
        yield f"answer_customer has priority: it waited {_seconds(urgent)}, send_email {_seconds(flood)}."


def _closed_hours(records: Records, company: Company) -> Iterator[str]:
    start, end = company.closed_from, company.closed_until
    if records.until < end:
        return
    count = scheduled_between(records, "back-up", start, end)
    yield f"From {_clock(start)} to {_clock(end)} UTC, the closed hours, back_up was due {count} times."


def _cells(one: TrainReport) -> tuple[str, ...]:
    counts = (one.runs, one.succeeded, one.failed, one.retried)
    return (one.train, *map(str, counts), _seconds(one.waited), _seconds(one.took))


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}"
