from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine

from trax.events import Events, Topic
from trax.records.states import Origin
from trax.records.work_queue_entry import NewEntry
from trax.store import Store
from trax.store.announce import Announcer, announce
from trax.store.listen import ListenConnection, Waker
from trax.store.queue import work_queue
from trax.store.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime

    from trax.store import Connection


class ReceivedTopics(list[Topic]):
    """The topics of announcements that a process received, in order."""

    def __init__(self) -> None:
        self.events = Events()
        for topic in Topic:
            self.events.listen(topic, lambda topic=topic: self.append(topic))


@contextmanager
def opened(url: str, announcer: Announcer) -> Generator[Store]:
    store = Store(url, announcer=announcer)
    store.open()
    yield store
    store.close()


@contextmanager
def listening(url: str) -> Generator[ListenConnection]:
    bell = Waker()
    with ListenConnection.open(url, bell) as line:
        yield line
    bell.close()


def change(connection: Connection) -> None:
    announce(connection, Topic.MANIFEST, Topic.WORK_QUEUE)
    announce(connection, Topic.WORK_QUEUE)


def fail(connection: Connection) -> None:
    announce(connection, Topic.WORK_QUEUE)
    raise LookupError


def test_listeners_of_this_process_are_notified_of_commits_only(url: str) -> None:
    received = ReceivedTopics()

    with opened(url, Announcer(received.events)) as store:
        with pytest.raises(LookupError):
            store.run(fail)
        assert received == []
        store.run(change)

    assert sorted(received) == [Topic.MANIFEST, Topic.WORK_QUEUE]


def test_other_processes_are_notified_once_per_topic_of_a_transaction(postgres_url: str) -> None:
    here, there = ReceivedTopics(), ReceivedTopics()
    other = Announcer(there.events)

    with opened(postgres_url, Announcer(here.events)) as store, listening(postgres_url) as line:
        with pytest.raises(LookupError):
            store.run(fail)
        store.run(change)
        payloads = line.receive(30)
        other.receive(payloads)

    assert len(payloads) == 2
    assert sorted(there) == [Topic.MANIFEST, Topic.WORK_QUEUE]


def test_a_thousand_entries_are_announced_once(postgres_url: str, now: datetime) -> None:
    entries = [
        NewEntry(external_id=str(number), train="greet", origin=Origin.QUEUE, input="null")
        for number in range(1000)
    ]

    with opened(postgres_url, Announcer()) as store, listening(postgres_url) as line:
        store.run(work_queue.add, entries, now=now)
        payloads = line.receive(30)

    assert len(payloads) == 1


def test_a_flood_wakes_each_loop_once() -> None:
    received = ReceivedTopics()

    Announcer(received.events).receive(["work_queue abc"] * 1000 + ["pending def"] * 1000)

    assert sorted(received) == [Topic.PENDING, Topic.WORK_QUEUE]


def test_a_process_ignores_its_own_announcements(postgres_url: str) -> None:
    received = ReceivedTopics()
    announcer = Announcer(received.events)

    with opened(postgres_url, announcer) as store, listening(postgres_url) as line:
        store.run(change)
        received.clear()
        announcer.receive(line.receive(30))

    assert received == []


def test_an_announcement_of_another_version_is_ignored() -> None:
    received = ReceivedTopics()

    Announcer(received.events).receive(["something new abc", "", "pending"])

    assert received == [Topic.PENDING]


def test_a_topic_handled_by_a_local_loop_is_not_sent(postgres_url: str) -> None:
    announcer = Announcer()
    is_enabled = True

    with opened(postgres_url, announcer) as store, listening(postgres_url) as line:
        forget = announcer.handle_locally(Topic.WORK_QUEUE, lambda: is_enabled)
        store.run(change)
        answered = line.receive(30)
        is_enabled = False
        store.run(lambda connection: announce(connection, Topic.WORK_QUEUE))
        switched_off = line.receive(30)
        is_enabled = True
        forget()
        store.run(lambda connection: announce(connection, Topic.WORK_QUEUE))
        forgotten = line.receive(30)

    assert [payload.split()[0] for payload in answered] == ["manifest"]
    assert len(switched_off) == len(forgotten) == 1


def test_a_disabled_announcer_sends_no_notification(postgres_url: str) -> None:
    with (
        opened(postgres_url, Announcer(sends=False)) as silent,
        opened(postgres_url, Announcer()) as store,
        listening(postgres_url) as line,
    ):
        silent.run(change)
        store.run(lambda connection: announce(connection, Topic.PENDING))
        payloads = line.receive(30)

    assert [payload.split()[0] for payload in payloads] == ["pending"]


def test_on_a_connection_of_the_caller_the_announcement_is_sent_at_commit(postgres_url: str) -> None:
    engine = create_engine(parse_url(postgres_url))

    with listening(postgres_url) as line:
        with engine.begin() as connection:
            announce(connection, Topic.WORK_QUEUE)
        payloads = line.receive(30)

    engine.dispose()
    assert payloads == ["work_queue"]


def test_an_announcement_that_arrives_during_a_ping_is_received(postgres_url: str) -> None:
    with listening(postgres_url) as line, opened(postgres_url, Announcer(ReceivedTopics().events)) as store:
        line.receive(0)
        store.run(change)
        line.ping()  # reads what was sent before its answer

        topics = {payload.split()[0] for payload in line.receive(0)}

    assert topics == {Topic.MANIFEST, Topic.WORK_QUEUE}
