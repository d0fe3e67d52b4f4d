"""One page of a list, with the cursors of the next pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage(Generic[T]):
    """One page of items, newest first.

    For the next page pass `older` as `before`, for the previous one `newer` as `after`; None: there is no
    such page. A search without a suitable index reads a bounded number of rows. If it stopped at that bound,
    `complete` is False, and `older` continues from there, however few items were found.
    """

    items: tuple[T, ...]
    older: Any = None
    newer: Any = None
    complete: bool = True
