"""`trax lint --queued`: which inputs that wait to run this code could not read. Nothing is changed.

To be asked before a deploy: what is refused here would be dead-lettered, one by one, after it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trax.errors import InvalidInput, UnknownTrain
from trax.store.migrations import ensure_current
from trax.store.waiting_inputs import page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trax.host.parts import Parts
    from trax.store import Connection, Store
    from trax.store.waiting_inputs import Waiting

PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Inputs of one train that are refused for the same reason, with one of them as an example."""

    train: str
    fields: tuple[str, ...]
    count: int
    example: str

    def __str__(self) -> str:
        inputs = "1 input that waits" if self.count == 1 else f"{self.count} inputs that wait"
        return f"train {self.train!r}: {inputs} could not be read: {'; '.join(self.fields)} ({self.example})"


@dataclass(frozen=True, slots=True)
class Looked:
    """How many inputs were looked at, whether those were all, and what was found."""

    count: int
    is_all: bool
    unreadable: list[Unreadable]


def lint_queued(
    parts: Parts, *, most: int | None = None, on_progress: Callable[[int], None] = lambda _: None
) -> Looked:
    """Look at all that waits, or at the `most` that wait longest; `on_progress` hears how many by now."""
    store = parts.store.unopened()
    if store is None:
        return Looked(0, is_all=True, unreadable=[])
    try:
        store.read(ensure_current)
        return _looked(parts, store, most, on_progress)
    finally:
        store.close()


def _looked(parts: Parts, store: Store, most: int | None, on_progress: Callable[[int], None]) -> Looked:
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    examples: dict[tuple[str, tuple[str, ...]], str] = {}
    seen, last = 0, None
    while some := _next(store, last, PAGE if most is None else min(PAGE, most - seen)):
        for one in some:
            if fields := _refused(parts, one):
                counts[one.train, fields] += 1
                examples.setdefault((one.train, fields), f"{one.kind} {one.id}")
        seen, last = seen + len(some), some[-1]
        on_progress(seen)
    found = [
        Unreadable(train=train, fields=fields, count=count, example=examples[train, fields])
        for (train, fields), count in counts.most_common()
    ]
    return Looked(seen, is_all=most is None or seen < most, unreadable=found)


def _next(store: Store, after: Waiting | None, limit: int) -> Sequence[Waiting]:
    def read(connection: Connection) -> Sequence[Waiting]:
        return page(connection, after=after, limit=limit)

    return store.read(read) if limit else ()


def _refused(parts: Parts, one: Waiting) -> tuple[str, ...]:
    """Which fields are refused, and why; the values stay out of it, so that equal troubles are counted."""
    try:
        parts.parameters.of_input(parts.trains.get(one.train)).decode(one.input or "null")
    except UnknownTrain:
        return ("this code has no such train",)
    except InvalidInput as refused:
        return tuple(f"{error.path or 'the value itself'}: {error.message}" for error in refused.errors)
    except Exception as broken:  # noqa: BLE001 - validators are code of the user's
        return (f"its type raised {type(broken).__name__}: {broken}",)
    return ()
