"""Events within this process: a topic without data, passed to the listeners of that topic.

A listener reads what it needs from the database, as it would at its next poll anyway.
"""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING

from trax.forks import bind_to_process, fork_safe

if TYPE_CHECKING:
    from collections.abc import Callable


class Topic(StrEnum):
    """What changed."""

    MANIFEST = "manifest"
    WORK_QUEUE = "work_queue"
    PENDING = "pending"
    SLOTS_FREE = "slots_free"
    ENDED = "ended"
    FINISHED = "finished"
    CANCEL = "cancel"
    SETTING = "setting"


class Events:
    """Calls the listeners of a topic. Any thread may emit; a listener must not block."""

    def __init__(self) -> None:
        self._listeners: defaultdict[Topic, list[Callable[[], None]]] = defaultdict(list)
        self._lock = fork_safe(Lock())
        bind_to_process(self)

    def reset_in_child(self) -> None:
        """The listeners belong to event loops and threads of the parent."""
        self._listeners.clear()

    def listen(self, topic: Topic, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener at each event of the topic; returns a function that removes the listener."""
        with self._lock:
            self._listeners[topic].append(listener)
        return lambda: self._remove(topic, listener)

    def emit(self, topic: Topic) -> None:
        with self._lock:
            listeners = tuple(self._listeners[topic])
        for listener in listeners:
            listener()

    def _remove(self, topic: Topic, listener: Callable[[], None]) -> None:
        with self._lock:
            if listener in self._listeners[topic]:  # a forked process has none of its parent's
                self._listeners[topic].remove(listener)
