"""Records on the screen as tables, in a pipe as plain lines, and for programs as JSON."""

from __future__ import annotations

import re
import sys
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TextIO

from pydantic_core import to_json
from rich.console import Console
from rich.table import Table

from trax.cli.moments import moment, relative, span
from trax.clock import utc_now
from trax.escapes import visible_json, visible_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BLANKS: Final = re.compile(r"[ \t\r\n]+")


def show_list(records: Sequence[Any], names: Sequence[str], *, as_json: bool) -> None:
    """One record a line, with these of its values; as JSON, all of its values."""
    if as_json:
        show_json([as_mapping(record) for record in records])
        return
    in_cell = in_column if sys.stdout.isatty() else in_line
    rows = [[in_cell(getattr(record, name)) for name in names] for record in records]
    show_rows([name.replace("_", " ") for name in names], rows)


def show_rows(header: Sequence[str], rows: Iterable[Sequence[str]], *, to: TextIO | None = None) -> None:
    """In a pipe the columns are parted by tabs, so that `cut` finds them."""
    out = to or sys.stdout
    if not out.isatty():
        for row in (header, *rows):
            print("\t".join(map(visible_text, row)), file=out, flush=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")  # an id that is cut short cannot be typed again
    for row in rows:
        table.add_row(*map(visible_text, row))
    Console(file=out, markup=False, highlight=False, emoji=False).print(table)


def show_one(record: Any, *, as_json: bool) -> None:
    """Every value of one record, a line each; long text goes below its name."""
    values = as_mapping(record)
    if as_json:
        show_json(values)
        return
    width = max(map(len, values)) + 2
    for name, value in values.items():
        text = spelled(value)
        below = "\n  " + text.replace("\n", "\n  ") if "\n" in text else text
        say(f"{name + ':':{width}}{below}".rstrip())


def show_json(value: Any) -> None:
    say(visible_json(to_json(value, indent=2).decode()))


def say(text: str) -> None:
    """Print lines. What a job or its input says must not steer the terminal that shows it."""
    print(visible_text(text, keep="\n\t"), flush=True)  # noqa: T201 - a command speaks here, and whoever follows it hears it at once


def as_mapping(record: Any) -> Mapping[str, Any]:
    """The values of a record, by the names it has in Python."""
    if is_dataclass(record):
        return {each.name: getattr(record, each.name) for each in fields(record)}
    return record


def spelled(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return moment(value, utc_now())
        case timedelta():
            return span(value)
        case str():
            return str(value)
        case _:
            return to_json(value).decode()


def in_line(value: Any) -> str:
    return visible_text(BLANKS.sub(" ", spelled(value)).strip(" "))


def in_column(value: Any) -> str:
    """On a screen there is little room: a moment is how far away it is."""
    return relative(value, utc_now()) if isinstance(value, datetime) else in_line(value)
