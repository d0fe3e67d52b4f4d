"""What a forked process must not share with its parent: sockets, files, threads, event loops and locks.

A child of `fork` (multiprocessing, `gunicorn --preload`) has copies of all objects, but only the thread that
forked. Whatever belongs to the process resets itself there, and is opened anew on its next use. Nothing is
closed: that would end the sessions of the parent.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakSet, ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)
LockT = TypeVar("LockT")


class ProcessBound(Protocol):
    """An object with state that belongs to one process."""

    def reset_in_child(self) -> None:
        """Forget it, in a child that was just forked: no other thread runs there yet."""
        ...


class ForkGate(Protocol):
    """An object that must be at rest while the process forks."""

    def close_for_fork(self) -> None: ...

    def open_after_fork(self) -> None: ...


_bound: Final[dict[int, ref[ProcessBound]]] = {}
"""In the order of their creation: some build on others."""
_gates: Final[WeakSet[ForkGate]] = WeakSet()
_locks: Final[WeakSet[Any]] = WeakSet()
_inherited: Final[list[Any]] = []


def bind_to_process(owner: ProcessBound) -> None:
    """Reset this object in each child that is forked from now on, for as long as it lives."""
    number = id(owner)
    _bound[number] = ref(owner, lambda _: _bound.pop(number, None) and None)


def rest_while_forking(gate: ForkGate) -> None:
    _gates.add(gate)


def fork_safe(lock: LockT) -> LockT:
    """Release this lock in each child: the thread that holds it at the fork does not exist there."""
    _locks.add(lock)
    return lock


def keep_inherited(*objects: Any) -> None:
    """Keep these objects in a child for as long as it runs: their finalizers would speak for the parent."""
    _inherited.extend(objects)


def _before() -> None:
    _call_each(gate.close_for_fork for gate in list(_gates))


def _after_in_parent() -> None:
    _call_each(gate.open_after_fork for gate in list(_gates))


def _after_in_child() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # noqa: SLF001 - as the standard library does
    owners = [each() for each in list(_bound.values())]
    _call_each(owner.reset_in_child for owner in owners if owner is not None)
    _after_in_parent()


def _call_each(steps: Iterable[Callable[[], None]]) -> None:
    for step in steps:
        try:
            step()
        except Exception:
            logger.exception("fork: a part of the app could not be prepared for it")


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
