"""Which queued entries fit under the limits. No I/O: give it numbers, get a list."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar


class GroupedEntry(Protocol):
    """A queued entry; without a group only the global limit applies to it."""

    @property
    def group_id(self) -> int | None: ...


Entry = TypeVar("Entry", bound=GroupedEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The limits and the numbers of active runs. None is no limit; a group without one is not in `limits`.

    `max_total` is the maximum number of entries in one cycle. `max_per_group` is the share of one group while
    entries of others wait; with `is_lone_group` none do.
    """

    limit: int | None
    active: int = 0
    limits: Mapping[int, int] = field(default_factory=dict[int, int])
    active_by_group: Mapping[int, int] = field(default_factory=dict[int, int])
    max_per_group: int | None = None
    max_total: int | None = None
    is_lone_group: bool = False

    @property
    def free_by_group(self) -> dict[int, int]:
        """How many more runs each group with a limit may start."""
        return {
            group: max(0, most - self.active_by_group.get(group, 0)) for group, most in self.limits.items()
        }

    @property
    def free(self) -> float:
        """How many more runs may start in total."""
        most = math.inf if self.max_total is None else self.max_total
        return min(most, self.free_under_limit)

    @property
    def free_under_limit(self) -> float:
        """How many more runs the global limit allows."""
        return math.inf if self.limit is None else self.limit - self.active

    def is_full(self, started: int) -> bool:
        return started >= self.free

    def group_is_full(self, group_id: int | None, started: int) -> bool:
        if group_id is None:
            return False
        if self.max_per_group is not None and started >= self.max_per_group:
            return True
        most = self.limits.get(group_id)
        return most is not None and self.active_by_group.get(group_id, 0) + started >= most


def select_with_shares(capacity: Capacity, entries: Sequence[Entry]) -> list[Entry]:
    """Keep the entries that may start now, in the order given.

    Free slots that are left after each group had its share go to the groups that have more entries.
    """
    first = select_within(capacity, entries)
    has_shares = capacity.max_per_group is not None and capacity.max_total is not None
    if not has_shares or len(first) >= capacity.free or len(first) == len(entries):
        return first
    shared = {id(entry) for entry in first}
    others = [entry for entry in entries if id(entry) not in shared]
    without_shares = replace(capacity, max_per_group=None)
    chosen = {id(entry) for entry in select_within(without_shares, [*first, *others])}
    return [entry for entry in entries if id(entry) in chosen]


def select_within(capacity: Capacity, entries: Sequence[Entry]) -> list[Entry]:
    """Keep the entries that may start now, in the order given.

    At the global limit the search ends. A full group skips only its own entries, so a busy group cannot
    starve the others.
    """
    selected: list[Entry] = []
    free, started = capacity.free, dict[int, int]()

    for entry in entries:
        if len(selected) >= free:
            break
        group_id = entry.group_id
        if group_id is not None:
            of_group = started.get(group_id, 0)
            if capacity.group_is_full(group_id, of_group):
                continue
            started[group_id] = of_group + 1
        selected.append(entry)

    return selected
