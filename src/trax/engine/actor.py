"""`trax.acting`: name the actor of a block of code, and record its changes in the audit log."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from trax.errors import DefinitionError, InvalidArgument, format_value
from trax.records.audit import Actor, NewAudit, Via
from trax.schedule.validate import TEXT, TEXT_OR_NONE
from trax.store import audit
from trax.train import Run, current

if TYPE_CHECKING:
    from collections.abc import Collection, Generator
    from datetime import datetime

    from trax.store import Connection

LONGEST_NAME: Final = 200
LONGEST_REASON: Final = 2_000
PROGRAM: Final = Actor("python")
"""Recorded for a change of a limit without an actor: `trax verify` needs every change of a limit."""
DECLARATION: Final = Actor("declaration", Via.SYSTEM)
"""The actor of limits that code declares, written when a server starts."""


@dataclass(frozen=True, slots=True)
class ActorContext:
    """The actor, the reason, and the run that makes the change, if any."""

    actor: Actor
    reason: str | None
    run: Run | None


_acting: ContextVar[ActorContext | None] = ContextVar("trax_acting", default=None)

load_acting = _acting.get
"""The actor that `acting` has set, also for the code of a train; None: no actor."""


@contextmanager
def acting(actor: Actor, *, reason: str | None = None) -> Generator[None]:
    """Record every change made within the block in the audit log, under this actor.

    The audit entry is written in the transaction of the change. Outside such a block nothing is recorded.
    """
    TEXT_OR_NONE("reason", reason)
    token = _acting.set(
        ActorContext(_validate_actor(actor), reason[:LONGEST_REASON] if reason else None, current())
    )
    try:
        yield
    finally:
        _acting.reset(token)


def actor_context() -> ActorContext | None:
    """The actor of this code, also inside a transaction, which runs in another thread.

    Changes that a train makes are not attributed to the operator who runs it.
    """
    acting_now = _acting.get()
    return acting_now if acting_now is not None and acting_now.run is current() else None


def record_audit(
    connection: Connection,
    action: str,
    noun: str,
    ids: Collection[Any],
    *,
    now: datetime,
    default: Actor | None = None,
    **fields: Any,
) -> int | None:
    """Write an audit entry for this change, if there is an actor or a `default` for one; return its id.

    The keywords are fields of `NewAudit` (before, after, restores, expects, undoes) and `count`.
    """
    context = actor_context() or (ActorContext(default, None, None) if default else None)
    if context is None:
        return None
    count = fields.pop("count", len(ids))
    new = NewAudit(action=action, noun=noun, ids=tuple(map(str, ids)), count=count, **fields)
    return audit.add(connection, new, actor=context.actor, reason=context.reason, now=now)


def _validate_actor(actor: Actor) -> Actor:
    if not isinstance(cast("Any", actor), Actor):
        raise InvalidArgument("actor", "an Actor", actor)
    name = TEXT("an actor's name", actor.name)
    if not name.strip() or len(name) > LONGEST_NAME:
        raise DefinitionError(
            f"an actor needs a name of 1 to {LONGEST_NAME} characters (got {format_value(name)})"
        )
    if not isinstance(cast("Any", actor.via), str) or actor.via not in set(Via):
        raise InvalidArgument("an actor's via", f"one of {', '.join(Via)}", actor.via)
    return Actor(name, Via(actor.via))
