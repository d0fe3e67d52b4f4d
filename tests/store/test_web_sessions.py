"""The rows of dashboard sessions and sign-in links."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.support.databases import IN_MEMORY_TOO

from trax.records.audit import NewWebSession, SignIn
from trax.store import web_sessions

if TYPE_CHECKING:
    from datetime import datetime

    from trax.records.audit import WebSession
    from trax.store import Store

pytestmark = IN_MEMORY_TOO

HOUR = timedelta(hours=1)


def begin(store: Store, key: str, now: datetime, **more: Any) -> WebSession:
    said = {"user": "ada", "role": "viewer", "proof": "p", "address": "", "user_agent": "", **more}
    new = NewWebSession(key=key, means=SignIn.PASSWORD, **said)
    return store.run(web_sessions.insert_session, new, now=now, expires_at=now + HOUR)


def test_a_session_is_found_by_its_key_until_it_expires(store: Store, now: datetime) -> None:
    session = begin(store, "k", now, user_agent="\x00 odd \ud800")

    found = store.read(web_sessions.load, "k", now=now + HOUR - timedelta(seconds=1))

    assert found == (session, "p")
    assert store.read(web_sessions.load, "k", now=now + HOUR) is None
    assert store.read(web_sessions.load, "another", now=now) is None


def test_sessions_are_listed_newest_first_a_page_at_a_time(store: Store, now: datetime) -> None:
    first, second, third = (begin(store, key, now, user=user) for key, user in zip("abc", "xyx", strict=True))

    def page(**wanted: Any) -> list[int]:
        wanted_sessions: web_sessions.CurrentSessions = {
            "now": wanted.pop("now", now),
            "user": wanted.pop("user", None),
        }
        found = store.read(web_sessions.SESSIONS.load_list, wanted_sessions, limit=2, **wanted)
        return [one.id for one in found]

    assert page() == [third.id, second.id]
    assert page(before=second.id) == [first.id]
    assert page(after=first.id) == [third.id, second.id]
    assert page(user="x") == [third.id, first.id]
    assert page(now=now + HOUR) == []


def test_sessions_end_by_id_by_user_and_all_together(store: Store, now: datetime) -> None:
    first, second, third = (begin(store, key, now, user=user) for key, user in zip("abc", "xyx", strict=True))

    assert store.run(web_sessions.delete_ids, [first.id, 999]) == [first.id]
    assert store.run(web_sessions.delete_all, user="x") == [third.id]
    assert store.run(web_sessions.delete_all, user=None) == [second.id]
    assert store.run(web_sessions.delete_all, user=None) == []


def test_a_link_is_redeemed_once_and_in_time(store: Store, now: datetime) -> None:
    for key in ("a", "b"):
        store.run(web_sessions.insert_link, key, now=now, lifetime=HOUR)

    assert [store.run(web_sessions.redeem_link, "a", now=now) for _ in range(2)] == [True, False]
    assert not store.run(web_sessions.redeem_link, "b", now=now + HOUR)


def test_expired_sessions_and_links_are_deleted_when_another_session_starts(
    store: Store, now: datetime
) -> None:
    begin(store, "a", now)
    store.run(web_sessions.insert_link, "link", now=now, lifetime=HOUR)

    later = begin(store, "b", now + HOUR)

    assert store.run(web_sessions.delete_all, user=None) == [later.id]
    assert not store.run(web_sessions.redeem_link, "link", now=now)
