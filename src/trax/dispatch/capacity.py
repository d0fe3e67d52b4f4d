"""Which queued entries fit under the limits. No I/O: give it numbers, get a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar


class Waiting(Protocol):
    """An entry at the gate; without a group it is bound by the global limit alone."""

    @property
    def group_id(self) -> int | None: ...


Entry = TypeVar("Entry", bound=Waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What may run, and what runs. A limit of None is no limit; a group that has none is not in `limits`.

    `share` bounds how many of one group are let through in one go, `most` how many in all.
    """

    limit: int | None
    active: int = 0
    limits: Mapping[int, int] = field(default_factory=dict[int, int])
    active_by_group: Mapping[int, int] = field(default_factory=dict[int, int])
    share: int | None = None
    most: int | None = None

    @property
    def rooms(self) -> dict[int, int]:
        """How many more each group with a limit may start."""
        return {
            group: max(0, most - self.active_by_group.get(group, 0)) for group, most in self.limits.items()
        }

    def is_full(self, started: int) -> bool:
        if self.most is not None and started >= self.most:
            return True
        return self.limit is not None and self.active + started >= self.limit

    def group_is_full(self, group_id: int | None, started: int) -> bool:
        if group_id is None:
            return False
        if self.share is not None and started >= self.share:
            return True
        most = self.limits.get(group_id)
        return most is not None and self.active_by_group.get(group_id, 0) + started >= most


def select_within(capacity: Capacity, entries: Sequence[Entry]) -> list[Entry]:
    """Keep the entries that may start now, in the order given.

    A full system ends the walk. A full group only passes over its own entries, so a busy group cannot starve
    the others.
    """
    selected: list[Entry] = []
    started: Counter[int | None] = Counter()

    for entry in entries:
        if capacity.is_full(len(selected)):
            break
        if capacity.group_is_full(entry.group_id, started[entry.group_id]):
            continue
        started[entry.group_id] += 1
        selected.append(entry)

    return selected
