"""Print records, tables and JSON; format moments and durations for people."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from trax.clock import format_distance, format_duration, utc_now
from trax.escapes import visible_json, visible_text
from trax.masking import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def moment(value: datetime, now: datetime) -> str:
    """`2027-03-01 12:00:00Z (5 min ago)`."""
    exact = f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    return f"{exact} ({format_distance(value, now)})"


DOCUMENTS: Final = ("input", "output", "before", "after")
"""Fields of records that hold any JSON."""
BLANKS: Final = re.compile(r"[ \t\r\n]+")


def show_list(records: Sequence[Any], names: Sequence[str], *, as_json: bool) -> None:
    """Print one record per line with the named values, such as `worker.host`; as JSON, all values."""
    if as_json:
        show_json([as_mapping(record) for record in records])
        return
    in_cell = table_cell if sys.stdout.isatty() else single_line
    rows = [[in_cell(_display_value(name, attrgetter(name)(record))) for name in names] for record in records]
    show_rows([name.rpartition(".")[2].replace("_", " ") for name in names], rows)


def show_rows(header: Sequence[str], rows: Iterable[Sequence[str]], *, to: TextIO | None = None) -> None:
    """Print a table; in a pipe, columns are separated by tabs, for `cut`."""
    out = to or sys.stdout
    if not out.isatty():
        for row in (header, *rows):
            print("\t".join(map(visible_text, row)), file=out, flush=True)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")  # a cut id could not be copied
    for row in rows:
        table.add_row(*map(visible_text, row))
    Console(file=out, markup=False, highlight=False, emoji=False).print(table)


def show_one(record: Any, *, as_json: bool) -> None:
    """Print every value of one record, one per line; text of several lines goes below its name."""
    values = as_mapping(record)
    if as_json:
        show_json(values)
        return
    width = max(map(len, values)) + 2
    for name, value in values.items():
        text = format_value(value)
        below = "\n  " + text.replace("\n", "\n  ") if "\n" in text else text
        say(f"{name + ':':{width}}{below}".rstrip())


def show_json(value: Any) -> None:
    from pydantic_core import to_json

    say(visible_json(to_json(_with_texts(value), indent=2).decode()))


def show_json_line(record: Any) -> None:
    """Print a record as one line of JSON."""
    from pydantic_core import to_json

    say(visible_json(to_json(_with_texts(as_mapping(record))).decode()))


def _with_texts(value: Any) -> Any:
    """A value with all its durations as text."""
    match value:
        case timedelta():
            return format_duration(value)
        case Mapping():
            return {name: _with_texts(inner) for name, inner in cast("Mapping[Any, Any]", value).items()}
        case list() | tuple():
            return [_with_texts(inner) for inner in cast("Sequence[Any]", value)]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {name: _with_texts(inner) for name, inner in as_mapping(value).items()}
        case _:
            return value


def say(text: str) -> None:
    """Print lines, with control characters of jobs and inputs made visible."""
    print(visible_text(text, keep="\n\t"), flush=True)  # noqa: T201 - a command's output; flushed for pipes


def as_mapping(record: Any) -> Mapping[str, Any]:
    """The values of a record by field name; secrets in what callers gave or got are hidden, as in the API."""
    if is_dataclass(record):
        return {each.name: _display_value(each.name, getattr(record, each.name)) for each in fields(record)}
    return record


def _display_value(name: str, value: Any) -> Any:
    return hide_secrets(value) if name in DOCUMENTS else value


def format_value(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return moment(value, utc_now())
        case timedelta():
            return format_duration(value)
        case str():
            return str(value)
        case _:
            from pydantic_core import to_json

            return to_json(_with_texts(value)).decode()


def single_line(value: Any) -> str:
    return visible_text(BLANKS.sub(" ", format_value(value)).strip(" "))


def table_cell(value: Any) -> str:
    """A value as a table cell: a moment is shown relative to now, to save space."""
    return format_distance(value, utc_now()) if isinstance(value, datetime) else single_line(value)
