from __future__ import annotations

import logging
from contextlib import contextmanager
from queue import Queue
from threading import enumerate as enumerate_threads
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.support.waiting import until

from trax.events import Events, Topic
from trax.server.listen import Listener
from trax.store import Store
from trax.store.announce import Announcer, announce
from trax.store.listen import LISTENER_NAME

if TYPE_CHECKING:
    from collections.abc import Generator
    from threading import Event

    from trax.store import Connection


EARS = "FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"


class TopicQueue(Queue[Topic]):
    """What the ear topics its process."""

    def __init__(self) -> None:
        super().__init__()
        self.events = Events()
        for topic in Topic:
            self.events.listen(topic, lambda topic=topic: self.put(topic))

    def everything(self) -> None:
        """Wait until every topic was topics: that is what an ear does when it begins to listen."""
        assert {self.get(timeout=30) for _ in Topic} == set(Topic)


@contextmanager
def hearing(url: str, topics: TopicQueue, pauses: list[float] | None = None) -> Generator[None]:
    def pause(_closed: Event, seconds: float) -> None:
        if pauses is not None:
            pauses.append(seconds)

    ear = Listener(url, Announcer(topics.events), pause=pause)
    yield
    ear.close()
    assert not [thread for thread in enumerate_threads() if thread.name == LISTENER_NAME]


@pytest.fixture
def other(postgres_url: str) -> Generator[Store]:
    """Another process, as far as the database can tell."""
    store = Store(postgres_url)
    yield store
    store.close()


def say(connection: Connection) -> None:
    announce(connection, Topic.PENDING)


def ears(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(f"SELECT count(*) {EARS}", [LISTENER_NAME]).fetchone()
    assert found
    return found[0]


def hang_up(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid) {EARS}", [LISTENER_NAME])


def test_an_announcement_of_another_process_arrives(postgres_url: str, other: Store) -> None:
    topics = TopicQueue()

    with hearing(postgres_url, topics):
        topics.everything()
        other.run(say)
        heard = topics.get(timeout=30)

    assert heard is Topic.PENDING
    until(lambda: ears(postgres_url) == 0)


def test_a_lost_connection_is_replaced_and_everything_is_read_at_once(
    postgres_url: str, other: Store, caplog: pytest.LogCaptureFixture
) -> None:
    topics = TopicQueue()
    caplog.set_level(logging.INFO)

    with hearing(postgres_url, topics):
        topics.everything()
        hang_up(postgres_url)
        topics.everything()
        other.run(say)
        heard = topics.get(timeout=30)

    assert heard is Topic.PENDING
    said = [record.getMessage() for record in caplog.records if record.name == "trax.server.listen"]
    assert [message.partition(":")[0] for message in said] == [
        "listener is not connected; this process relies on polling",
        "listener connected again",
    ]


def test_an_unreachable_database_is_retried_less_and_less_often_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics, pauses = TopicQueue(), list[float]()

    with hearing("postgresql://nobody@127.0.0.1:1/nothing", topics, pauses):
        until(lambda: len(pauses) >= 6)

    assert pauses[:6] == [0.5, 1, 2, 5, 5, 5]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert topics.empty()
