"""The rows of password hashes, one per app and user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.databases import IN_MEMORY_TOO

from trax.store import web_sessions
from trax.store.web_sessions import StoredPassword

if TYPE_CHECKING:
    from datetime import datetime

    from trax.store import Store

pytestmark = IN_MEMORY_TOO

ADA = StoredPassword("ada", "hash of ada", "proof of ada")
BOB = StoredPassword("bob", "hash of bob", "proof of bob")


def write(store: Store, now: datetime, *rows: StoredPassword, app: str = "bar") -> None:
    for row in rows:
        store.run(web_sessions.write_password, row, app=app, now=now)


def test_a_user_of_an_app_has_one_row(store: Store, now: datetime) -> None:
    newer = StoredPassword("ada", "another hash", "another proof")

    write(store, now, ADA, BOB, newer)
    write(store, now, ADA, app="kitchen")

    stored = store.read(web_sessions.load_passwords, app="bar")
    assert sorted(stored, key=lambda row: row.user) == [newer, BOB]
    assert store.read(web_sessions.load_passwords, app="kitchen") == [ADA]
    assert store.read(web_sessions.load_passwords, app="other") == []
    assert not any(secret in repr(newer) for secret in ("another hash", "another proof"))


def test_a_row_that_was_replaced_meanwhile_is_not_deleted(store: Store, now: datetime) -> None:
    newer = StoredPassword("ada", "another hash", "another proof")
    write(store, now, newer, BOB)
    write(store, now, ADA, app="kitchen")

    store.run(web_sessions.delete_void_passwords, [ADA, BOB], app="bar")
    store.run(web_sessions.delete_void_passwords, [], app="bar")

    assert store.read(web_sessions.load_passwords, app="bar") == [newer]
    assert store.read(web_sessions.load_passwords, app="kitchen") == [ADA]
