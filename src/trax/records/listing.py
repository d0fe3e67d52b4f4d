"""Pages and counts of lists, and the ids that a verb changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


class ChangedIds(int):
    """How many records a verb changed. `ids` names them, in ascending order; it also iterates over those.

    It is a number, and equals the list of its ids too.
    """

    _ids: tuple[int, ...]

    def __new__(cls, ids: Iterable[int]) -> Self:
        ordered = tuple(sorted(ids))
        made = super().__new__(cls, len(ordered))
        made._ids = ordered
        return made

    @property
    def ids(self) -> tuple[int, ...]:
        return self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __getitem__(self, position: int) -> int:
        return self._ids[position]

    def __contains__(self, record_id: object) -> bool:
        return record_id in self._ids

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ChangedIds | list | tuple):
            return list(self._ids) == list(cast("Iterable[Any]", other))
        return int(self) == other

    def __hash__(self) -> int:
        return hash(int(self))

    def __repr__(self) -> str:
        return f"ChangedIds({list(self._ids)})"

    def __str__(self) -> str:
        return str(int(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._ids,)
