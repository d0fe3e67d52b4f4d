"""Pages and counts of lists, and the ids that a verb changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage(Generic[T]):
    """One page of items: records by id, newest first; manifests, groups and workers in ascending order.

    `before` and `after` compare keys: `before=7` are the records with an id (or a name) below 7, `after=7`
    those above, whatever the order of the list. Pass `older` as `before` for the page with the lower keys,
    and `newer` as `after` for the one with the higher keys; None: there is no such page.

    A search without a suitable index reads a bounded number of rows. If it stopped at that bound, `complete`
    is False, and the cursor continues from there, however few items were found.
    """

    items: tuple[T, ...]
    older: Any = None
    newer: Any = None
    complete: bool = True


COUNT_LIMIT: Final = 10_000
"""Counting stops here, to bound its cost; a larger number is an estimate."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number, and whether it is exact or an estimate."""

    number: int
    exact: bool = True

    def __str__(self) -> str:
        return str(self.number) if self.exact else f"about {self.number}"
