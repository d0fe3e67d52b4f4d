"""One schedule of another scheduler, and what it is here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import PydanticSerializationError, to_jsonable_python

from trax.bounds import LONGEST
from trax.records.when import Interval, Schedule
from trax.schedule.every import every

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_ID: Final = 60
NO_LIMIT: Final = timedelta(days=LONGEST.days)
"""The longest timeout that can be said, 68 years: without one, `default_job_timeout` would end the run."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line for a shell: what it reads, and the environment that was set for it."""

    line: str
    stdin: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """What they were told, and what it becomes.

    `when` is a schedule, a single moment, or None for what cannot be started by time here: that becomes a
    manifest to be started by hand, so that nothing is left out unseen. `options` are those of a schedule of
    ours, beside the `timeout`: how long a run might take there. `theirs` are the next moments as they reckon
    them, None when that is not known.
    """

    external_id: str
    task: str
    written: str
    when: Schedule | datetime | None = None
    input: Any = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timeout: timedelta = NO_LIMIT
    remarks: tuple[str, ...] = ()
    theirs: tuple[datetime, ...] | None = None


def told_apart(found: Iterable[Foreign]) -> list[Foreign]:
    """The same, each with an external id that is its own and may be one."""
    taken: set[str] = set()
    apart: list[Foreign] = []
    for one in found:
        base = wanted = _slug(one.external_id)
        count = 1
        while wanted in taken:
            count += 1
            wanted = f"{base}-{count}"
        taken.add(wanted)
        apart.append(replace(one, external_id=wanted))
    return apart


def plain(value: Any) -> tuple[Any, tuple[str, ...]]:
    """A value as plain data, or None and a remark that says what could not be taken along."""
    try:
        return to_jsonable_python(value), ()
    except (PydanticSerializationError, ValueError):
        return None, (f"its arguments {value!r} are not plain data; write them into the train",)


def arguments(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """What a task was called with, as one input: nothing, a list, a mapping, or both of them by name."""
    positional, named = list(args), dict(kwargs)
    if positional and named:
        return plain({"args": positional, "kwargs": named})
    return plain(positional or named or None)


def at_a_fixed_rate(interval: timedelta) -> tuple[Interval, tuple[str, ...]]:
    """Every so often, as it was there, in whole seconds; and a remark where they were not."""
    exact = interval.total_seconds()
    seconds = max(1, ceil(exact))
    odd = () if seconds == exact else (f"every {exact:g} s became {seconds} s: whole seconds, at least one",)
    return every(seconds=seconds, anchored=True), odd


def _slug(name: str) -> str:
    """A name as it may be typed: words joined by dashes."""
    words = re.sub(r"[^\w.:@+-]+", "-", name).strip("-.")
    return words[:LONGEST_ID].rstrip("-.") or "job"
