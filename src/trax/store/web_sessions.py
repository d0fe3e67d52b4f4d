"""Store dashboard sessions and one-time sign-in links. Secrets are stored as digests only."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import delete, insert, select, update

from trax.records.audit import SignIn, WebSession
from trax.store.dialect import among, id_document
from trax.store.listing import RecordQuery, Search
from trax.store.schema import tables
from trax.store.types import storable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Connection, Row, Select

    from trax.records.audit import NewWebSession
    from trax.records.listing import SessionFilter


class StoredSession(NamedTuple):
    """A session, and the proof that ties it to the password used at sign-in."""

    session: WebSession
    proof: str


def insert_session(
    connection: Connection, new: NewWebSession, *, now: datetime, lifetime: timedelta
) -> WebSession:
    """Insert a session, and delete expired ones."""
    purge(connection, now=now)
    session = tables(connection).web_session
    row: dict[str, Any] = {name: storable(value) for name, value in asdict(new).items()}
    times = {"created_at": now, "last_seen_at": now, "expires_at": now + lifetime}
    statement = insert(session).values(**row, **times).returning(session)
    return _record(connection.execute(statement).one())


def load(connection: Connection, key: str, *, now: datetime) -> StoredSession | None:
    """Load the session with this secret digest, unless it has expired."""
    session = tables(connection).web_session
    query = select(session).where(session.c.key == key, session.c.expires_at > now)
    row = connection.execute(query).one_or_none()
    return StoredSession(_record(row), row.proof) if row else None


def mark_seen(connection: Connection, session_id: int, *, now: datetime) -> None:
    session = tables(connection).web_session
    connection.execute(update(session).where(session.c.id == session_id).values(last_seen_at=now))


def delete_ids(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Delete sessions. Returns the ids that existed."""
    session = tables(connection).web_session
    statement = delete(session).where(among(connection, session.c.id)).returning(session.c.id)
    return sorted(connection.execute(statement, {"ids": id_document(ids)}).scalars())


def delete_key(connection: Connection, key: str) -> list[int]:
    session = tables(connection).web_session
    return list(
        connection.execute(delete(session).where(session.c.key == key).returning(session.c.id)).scalars()
    )


def delete_all(connection: Connection, *, user: str | None) -> list[int]:
    """Delete all sessions, or those of one user. Returns their ids."""
    session = tables(connection).web_session
    statement = delete(session).returning(session.c.id)
    if user is not None:
        statement = statement.where(session.c.user == user)
    return sorted(connection.execute(statement).scalars())


def insert_link(connection: Connection, key: str, *, now: datetime, lifetime: timedelta) -> None:
    purge(connection, now=now)
    link = tables(connection).web_link
    connection.execute(insert(link).values(key=key, created_at=now, expires_at=now + lifetime))


def redeem_link(connection: Connection, key: str, *, now: datetime) -> bool:
    """Delete a valid link. Only one of two concurrent calls returns True."""
    link = tables(connection).web_link
    statement = delete(link).where(link.c.key == key, link.c.expires_at > now)
    return connection.execute(statement).rowcount == 1


def purge(connection: Connection, *, now: datetime) -> int:
    """Delete expired sessions and links. Returns how many sessions."""
    t = tables(connection)
    connection.execute(delete(t.web_link).where(t.web_link.c.expires_at <= now))
    return connection.execute(delete(t.web_session).where(t.web_session.c.expires_at <= now)).rowcount


def _record(row: Row[Any]) -> WebSession:
    return WebSession(
        id=row.id,
        user=row.user,
        role=row.role,
        means=SignIn(row.means),
        address=row.address,
        user_agent=row.user_agent,
        created_at=row.created_at,
        last_seen_at=row.last_seen_at,
        expires_at=row.expires_at,
    )


def _select_records(connection: Connection) -> Select[Any]:
    return select(tables(connection).web_session)


def _search(connection: Connection, session_filter: SessionFilter) -> Search:
    session = tables(connection).web_session
    conditions: list[ColumnElement[bool]] = [session.c.expires_at > session_filter.now]
    if session_filter.user is not None:
        conditions.append(session.c.user == session_filter.user)
    return Search(table=session, unindexed=conditions)


SESSIONS: Final = RecordQuery(search=_search, records=_select_records, record=_record)
