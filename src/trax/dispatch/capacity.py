"""Which queued entries fit under the limits. No I/O: give it numbers, get a list."""

from __future__ import annotations

import math
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

    @property
    def room(self) -> float:
        """How many more may start in all."""
        most = math.inf if self.most is None else self.most
        return most if self.limit is None else min(most, self.limit - self.active)

    def is_full(self, started: int) -> bool:
        return started >= self.room

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
    room, started = capacity.room, dict[int, int]()

    for entry in entries:
        if len(selected) >= room:
            break
        group_id = entry.group_id
        if group_id is not None:
            of_group = started.get(group_id, 0)
            if capacity.group_is_full(group_id, of_group):
                continue
            started[group_id] = of_group + 1
        selected.append(entry)

    return selected
