"""What a transaction changed that concerns others: noted while it runs, told when it commits.

Loops of this process hear it as an event. Other processes hear it from PostgreSQL, which delivers a
notification exactly if the transaction commits. Whoever hears nothing finds out at the next poll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from trax.events import Events, Topic
from trax.store import dialect

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from sqlalchemy import Connection

    from trax.store.pipeline import Step

ANNOUNCED: Final = "trax_announced"


def announce(connection: Connection, *topics: Topic) -> None:
    """Wake whoever waits for this, here and elsewhere, if and when this transaction commits.

    On a connection that a caller has lent us nobody collects the topics, so the database is told at once.
    """
    announced = connection.get_execution_options().get(ANNOUNCED)
    if announced is not None:
        announced.topics.update(topics)
        return
    for topic in topics:
        dialect.notify(connection, topic)


def notifications(connection: Connection) -> list[Step]:
    """What was announced so far, as steps for a transaction that sends its own commit."""
    announced = connection.get_execution_options().get(ANNOUNCED)
    return [] if announced is None else announced.for_others(connection)


def send_last(connection: Connection, step: Step) -> bool:
    """Have a statement, whose answer nobody needs, go along with the commit; False if that cannot be."""
    announced = connection.get_execution_options().get(ANNOUNCED)
    if announced is None or dialect.is_sqlite(connection):
        return False
    announced.last.append(step)
    return True


def is_lent(connection: Connection) -> bool:
    """Whether a caller opened this connection: any driver may be below it, and nobody collects topics."""
    return ANNOUNCED not in connection.get_execution_options()


class Announced:
    """The topics of one transaction, and which of them others have been told."""

    def __init__(self, announcer: Announcer) -> None:
        self.topics: set[Topic] = set()
        self.last: list[Step] = []
        self._told: set[Topic] = set()
        self._announcer = announcer

    def for_others(self, connection: Connection) -> list[Step]:
        """What to send before the commit that has not been sent."""
        untold, self._told = self.topics - self._told, set(self.topics)
        last, self.last = self.last, []
        return [*last, *self._announcer.for_others(connection, untold)] if untold else last


class Announcer:
    """Tells this process by events and other processes by notifications.

    A topic that a loop of this process answers for need not be sent: what that loop makes of it is.
    """

    def __init__(self, events: Events | None = None, *, sends: bool = True) -> None:
        self._events = events or Events()
        self._sends = sends
        self._answered: dict[Topic, Callable[[], bool]] = {}
        self._sender = uuid4().hex[:12]

    def answer(self, topic: Topic, is_answered: Callable[[], bool]) -> Callable[[], None]:
        """Send this topic to nobody else as long as a loop here answers for it; returns how to stop that."""

        def forget() -> None:
            del self._answered[topic]

        self._answered[topic] = is_answered
        return forget

    def for_others(self, connection: Connection, topics: AbstractSet[Topic]) -> list[Step]:
        """What to send before the commit, so that others hear of it; often nothing."""
        if dialect.is_sqlite(connection) or not self._sends:
            return []
        sent = (topic for topic in topics if not self._is_answered(topic))
        return [dialect.notification(f"{topic} {self._sender}") for topic in sent]

    def pass_on(self, connection: Connection, topic: Topic) -> None:
        """Send a topic to others although a loop here answers for it: it could not do everything."""
        if self._sends:
            dialect.notify(connection, f"{topic} {self._sender}")

    def tell_here(self, topics: AbstractSet[Topic]) -> None:
        for topic in topics:
            self._events.emit(topic)

    def hear(self, payloads: list[str]) -> None:
        """Tell this process what others have sent, each topic once; what it sent itself it knows."""
        said = (payload.partition(" ") for payload in payloads)
        topics = {topic for topic, _, sender in said if sender != self._sender}
        self.tell_here({topic for topic in Topic if topic in topics})

    def hear_all(self) -> None:
        """Tell this process to look everywhere: nobody knows what was said while it could not listen."""
        self.tell_here(set(Topic))

    def _is_answered(self, topic: Topic) -> bool:
        is_answered: Any = self._answered.get(topic)
        return is_answered is not None and is_answered()
