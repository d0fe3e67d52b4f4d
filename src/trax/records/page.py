"""One page of a long list, and where the next ones begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some items, newest first.

    To read on, pass `older` as `before`; to go back, pass `newer` as `after`; None: there is nothing more.
    A search that no index answers looks at a bounded number of rows. When it stopped there, `complete` is
    False, and `older` goes on from where it stopped, however few items it found.
    """

    items: tuple[T, ...]
    older: Any = None
    newer: Any = None
    complete: bool = True
