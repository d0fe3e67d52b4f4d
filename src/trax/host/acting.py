"""Who acts: said once around what is done, and written down with everything that is changed there."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trax.errors import DefinitionError, shown
from trax.records.audit import Actor, NewAudit, Via
from trax.store import audit
from trax.train import Run, current

if TYPE_CHECKING:
    from collections.abc import Collection, Generator
    from datetime import datetime

    from trax.store import Connection

LONGEST_NAME: Final = 200
LONGEST_REASON: Final = 2_000


@dataclass(frozen=True, slots=True)
class Acting:
    """Who acts, and the reason they gave; `run` is the run they act from, if it is one."""

    actor: Actor
    reason: str | None
    run: Run | None


_acting: ContextVar[Acting | None] = ContextVar("trax_acting", default=None)


@contextmanager
def acting(actor: Actor, *, reason: str | None = None) -> Generator[None]:
    """Write down what is changed within the block, in the name of this actor.

    The entry is part of the change's own transaction. What is done outside such a block leaves none.
    """
    token = _acting.set(Acting(_checked(actor), reason[:LONGEST_REASON] if reason else None, current()))
    try:
        yield
    finally:
        _acting.reset(token)


def who_acts() -> Acting | None:
    """Who acts here, also inside the transaction, which runs in another thread.

    What a train does that an operator runs is the train's own doing, and not the operator's.
    """
    somebody = _acting.get()
    return somebody if somebody is not None and somebody.run is current() else None


def note(
    connection: Connection,
    action: str,
    noun: str,
    ids: Collection[Any],
    *,
    now: datetime,
    **said: Any,
) -> int | None:
    """Write down what was just done to these, if somebody acts; gives the id of the entry.

    `said` may be what `NewAudit` knows: before, after, restores, expects, undoes; and `count`.
    """
    somebody = who_acts()
    if somebody is None:
        return None
    count = said.pop("count", len(ids))
    new = NewAudit(action=action, noun=noun, ids=tuple(map(str, ids)), count=count, **said)
    return audit.add(connection, new, actor=somebody.actor, reason=somebody.reason, now=now)


def _checked(actor: Actor) -> Actor:
    name = actor.name
    if not name.strip() or len(name) > LONGEST_NAME:
        raise DefinitionError(f"an actor needs a name of 1 to {LONGEST_NAME} characters (got {shown(name)})")
    return Actor(name, Via(actor.via))
