"""Announce topics on commit: collected during the transaction, sent when it commits.

Loops of this process receive an event. Other processes receive a PostgreSQL notification, which is delivered
exactly if the transaction commits. A process that misses one finds the change at its next poll.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from trax.events import Events, Topic
from trax.store import dialect

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection

    from trax.store.pipeline import BoundStatement

ANNOUNCEMENTS_OPTION: Final = "trax_announced"


_is_silent: ContextVar[bool] = ContextVar("trax_silent", default=False)


@contextmanager
def silence() -> Generator[None]:
    """Send no notifications from a caller's connection in this block: others find the change by polling."""
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


def announce(connection: Connection, *topics: Topic, is_sent: bool = False) -> None:
    """Announce topics to this process and others, if and when this transaction commits.

    A caller's connection collects no topics, so there the notification is executed at once. `is_sent` says
    that a statement has sent the `notification_payload` of the topic.
    """
    announcements: Announcements | None = connection.get_execution_options().get(ANNOUNCEMENTS_OPTION)
    if announcements is not None:
        announcements.add(topics, is_sent=is_sent)
        return
    if not (is_sent or _is_silent.get()):
        for topic in topics:
            dialect.notify(connection, topic)


def notification_payload(connection: Connection, topic: Topic) -> str | None:
    """What a statement sends to other processes with `notify_expression`; None if nothing is to be sent."""
    announcements: Announcements | None = connection.get_execution_options().get(ANNOUNCEMENTS_OPTION)
    if announcements is None:
        return None if _is_silent.get() else topic.value
    return announcements.payload(topic)


def notifications(connection: Connection) -> list[BoundStatement]:
    """The pending notifications as statements, for a transaction that sends its own commit."""
    announcements: Announcements | None = connection.get_execution_options().get(ANNOUNCEMENTS_OPTION)
    return [] if announcements is None else announcements.take_notifications(connection)


def send_with_commit(connection: Connection, statement: BoundStatement) -> bool:
    """Send a statement whose result is not needed together with the commit; False if not possible."""
    announcements: Announcements | None = connection.get_execution_options().get(ANNOUNCEMENTS_OPTION)
    if announcements is None or dialect.is_sqlite(connection):
        return False
    announcements.final_statements.append(statement)
    return True


def is_caller_connection(connection: Connection) -> bool:
    """Whether this is a caller's connection: its driver is unknown, and topics are not collected."""
    return ANNOUNCEMENTS_OPTION not in connection.get_execution_options()


class Announcements:
    """The topics announced in one transaction, and those already sent to other processes."""

    def __init__(self, announcer: Announcer) -> None:
        self.topics: set[Topic] = set()
        self.final_statements: list[BoundStatement] = []
        self._sent: set[Topic] = set()
        self._announcer = announcer

    def add(self, topics: Iterable[Topic], *, is_sent: bool) -> None:
        self.topics.update(topics)
        if is_sent:
            self._sent.update(topics)

    def payload(self, topic: Topic) -> str | None:
        return None if topic in self._sent else self._announcer.payload(topic)

    def take_notifications(self, connection: Connection) -> list[BoundStatement]:
        """The statements to send before the commit that were not sent yet; marks them as sent."""
        unsent, self._sent = self.topics - self._sent, set(self.topics)
        final, self.final_statements = self.final_statements, []
        return [*final, *self._announcer.build_notifications(connection, unsent)] if unsent else final


class Announcer:
    """Announces topics: events in this process, notifications to other processes.

    A topic that a loop of this process handles is not sent: that loop announces its own results.
    """

    def __init__(self, events: Events | None = None, *, sends: bool = True) -> None:
        self._events = events or Events()
        self._sends = sends
        self._local_handlers: dict[Topic, Callable[[], bool]] = {}
        self._sender = uuid4().hex[:12]

    def reset_in_child(self) -> None:
        """A forked process handles no topic itself, and what it sends is news for its parent."""
        self._local_handlers.clear()
        self._sender = uuid4().hex[:12]

    def handle_locally(self, topic: Topic, is_handled: Callable[[], bool]) -> Callable[[], None]:
        """Keep this topic in this process while a loop here handles it; returns a function to undo this."""

        def stop_handling() -> None:
            self._local_handlers.pop(topic, None)

        self._local_handlers[topic] = is_handled
        return stop_handling

    def build_notifications(self, connection: Connection, topics: AbstractSet[Topic]) -> list[BoundStatement]:
        """The notifications to send to other processes before the commit; often none."""
        if dialect.is_sqlite(connection) or not self._sends:
            return []
        payloads = map(self.payload, topics)
        return [dialect.notification(payload) for payload in payloads if payload is not None]

    def payload(self, topic: Topic) -> str | None:
        """The notification of this topic to other processes; None if none is sent."""
        is_needed = self._sends and not self._is_handled_locally(topic)
        return f"{topic.value} {self._sender}" if is_needed else None

    def notify_others(self, connection: Connection, topic: Topic) -> None:
        """Notify other processes of a topic that a loop here handles but could not finish."""
        if self._sends:
            dialect.notify(connection, f"{topic} {self._sender}")

    def emit(self, topics: AbstractSet[Topic]) -> None:
        for topic in topics:
            self._events.emit(topic)

    def receive(self, payloads: list[str]) -> None:
        """Emit the topics received from other processes, each once; skips what this process sent itself."""
        parts = (payload.partition(" ") for payload in payloads)
        topics = {topic for topic, _, sender in parts if sender != self._sender}
        self.emit({topic for topic in Topic if topic in topics})

    def emit_all(self) -> None:
        """Emit every topic: notifications may have been missed while the listener was disconnected."""
        self.emit(set(Topic))

    def _is_handled_locally(self, topic: Topic) -> bool:
        handles: Any = self._local_handlers.get(topic)
        return handles is not None and handles()
