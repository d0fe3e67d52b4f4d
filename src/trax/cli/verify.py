"""`trax verify`: check the history for violated limits, lost and repeated jobs, and missed occurrences."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from trax.cli.lists import Since, Until  # noqa: TC001 - cyclopts reads them
from trax.cli.operators import AsJson, DatabaseUrl, require_database
from trax.cli.output import as_mapping, say, show_json, show_rows
from trax.errors import count_noun

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from trax.records.verification import DensestWindow, Overlap, Verification

SHOWN_GROUPS: Final = 20


def verify(
    *, since: Since = None, until: Until = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> int:
    """Check the history: limits, lost and repeated jobs, order, missed occurrences; change nothing.

    Reads the records of all time in small steps, also while servers run. Exits with 0 if there is no finding,
    with 1 if there is one, and with 2 if the database cannot be read.
    """
    from trax.inspect.verify import verify as verify_history
    from trax.store import Store
    from trax.store.engine import Timeouts
    from trax.store.migrations import ensure_current

    store = Store(require_database(database_url), timeouts=Timeouts(statement_seconds=None))
    try:
        store.read(ensure_current)
        with _progress_bar(is_wanted=not as_json) as on_progress:
            found = verify_history(store, since=since, until=until, on_progress=on_progress)
    finally:
        store.close()
    if as_json:
        show_json({**as_mapping(found), "is_clean": found.is_clean})
    else:
        _show(found)
    return 0 if found.is_clean else 1


@contextmanager
def _progress_bar(*, is_wanted: bool) -> Generator[Callable[[int, int], None] | None]:
    """A progress bar, if it is wanted and the error output is a terminal."""
    if not (is_wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading the history")
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _show(found: Verification) -> None:
    shown = [found.total, *found.groups[:SHOWN_GROUPS]]
    show_rows(
        [
            "group",
            "runs",
            "most active",
            "limit then",
            "at",
            "exceeded",
            "limit not known",
            "most in 1 s",
            "in 1 min",
        ],
        [_overlap_row(each) for each in shown],
    )
    if len(found.groups) > SHOWN_GROUPS:
        say(f"… and {len(found.groups) - SHOWN_GROUPS} more groups; --json lists all")
    if found.keys.runs:
        runs = count_noun(found.keys.runs, "run")
        say(f"unique keys: {runs}, at most {found.keys.most} of one key active together")
    for line in _lines_of_findings(found):
        say(line)
    read = (
        f"{count_noun(found.runs, 'run')}, {count_noun(found.entries, 'entry', 'entries')}, "
        f"{count_noun(found.dead_letters, 'dead letter')} and {count_noun(found.log_lines, 'log line')}"
    )
    count = sum(found.counts.values())
    verdict = "clean" if found.is_clean else count_noun(count, "finding")
    say(f"{verdict}: {read} read")


def _lines_of_findings(found: Verification) -> Iterator[str]:
    for finding in found.findings:
        yield f"WRONG  {_words(finding.kind)}: {finding.text}"
    for kind, count in found.counts.items():
        listed = sum(finding.kind is kind for finding in found.findings)
        if count > listed:
            yield f"WRONG  {_words(kind)}: {count - listed} more"
    for note in found.notes:
        yield f"note: {note}"


def _overlap_row(each: Overlap) -> list[str]:
    limit = "none" if each.limit is None else str(each.limit)
    return [
        "(all)" if each.group is None else each.group,
        str(each.admitted),
        str(each.most),
        limit if each.is_limit_known else "not known",
        "-" if each.at is None else f"{each.at:%Y-%m-%d %H:%M:%S}Z",
        str(each.exceeded),
        str(each.unknown),
        _window(each.densest_second),
        _window(each.densest_minute),
    ]


def _window(densest: DensestWindow) -> str:
    return str(densest.admitted)


def _words(kind: Any) -> str:
    return str(kind).replace("_", " ")
