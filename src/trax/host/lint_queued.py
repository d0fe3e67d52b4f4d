"""`trax lint --queued`: find queued inputs that this code cannot decode. Read-only.

Run it before a deploy: such inputs would become dead letters, one by one, after it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trax.errors import InvalidInput, UnknownTrain
from trax.store.migrations import ensure_current
from trax.store.waiting_inputs import load_page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trax.host.parts import Parts
    from trax.store import Connection, Store
    from trax.store.waiting_inputs import WaitingInput

PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableInputs:
    """Inputs of one train that are invalid for the same reason, with an example."""

    train: str
    fields: tuple[str, ...]
    count: int
    example: str

    def __str__(self) -> str:
        inputs = "1 queued input" if self.count == 1 else f"{self.count} queued inputs"
        return f"train {self.train!r}: {inputs} cannot be decoded: {'; '.join(self.fields)} ({self.example})"


@dataclass(frozen=True, slots=True)
class QueuedLintResult:
    """How many inputs were checked, whether those were all, and which are unreadable."""

    count: int
    is_all: bool
    unreadable: list[UnreadableInputs]


def lint_queued(
    parts: Parts, *, limit: int | None = None, on_progress: Callable[[int], None] = lambda _: None
) -> QueuedLintResult:
    """Check all queued inputs, or the `most` oldest; `on_progress` is called with the number checked."""
    store = parts.store.build_store_as_is()
    if store is None:
        return QueuedLintResult(0, is_all=True, unreadable=[])
    try:
        store.read(ensure_current)
        return _lint_inputs(parts, store, limit, on_progress)
    finally:
        store.close()


def _lint_inputs(
    parts: Parts, store: Store, limit: int | None, on_progress: Callable[[int], None]
) -> QueuedLintResult:
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    examples: dict[tuple[str, tuple[str, ...]], str] = {}
    seen, last = 0, None
    while some := _next_page(store, last, PAGE if limit is None else min(PAGE, limit - seen)):
        for waiting in some:
            if fields := _find_invalid_fields(parts, waiting):
                counts[waiting.train, fields] += 1
                examples.setdefault((waiting.train, fields), f"{waiting.kind} {waiting.id}")
        seen, last = seen + len(some), some[-1]
        on_progress(seen)
    unreadable = [
        UnreadableInputs(train=train, fields=fields, count=count, example=examples[train, fields])
        for (train, fields), count in counts.most_common()
    ]
    return QueuedLintResult(seen, is_all=limit is None or seen < limit, unreadable=unreadable)


def _next_page(store: Store, after: WaitingInput | None, limit: int) -> Sequence[WaitingInput]:
    def read(connection: Connection) -> Sequence[WaitingInput]:
        return load_page(connection, after=after, limit=limit)

    return store.read(read) if limit else ()


def _find_invalid_fields(parts: Parts, waiting_input: WaitingInput) -> tuple[str, ...]:
    """The invalid fields and reasons, without the values, so that equal problems are counted together."""
    try:
        parts.parameters.input_codec(parts.trains.get(waiting_input.train)).decode(
            waiting_input.input or "null"
        )
    except UnknownTrain:
        return ("this code does not define the train",)
    except InvalidInput as refused:
        return tuple(f"{error.path or 'the value itself'}: {error.message}" for error in refused.errors)
    except Exception as broken:  # noqa: BLE001 - validators are user code
        return (f"its validator raised {type(broken).__name__}: {broken}",)
    return ()
