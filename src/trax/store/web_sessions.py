"""Store dashboard sessions, one-time sign-in links and password hashes. Secrets are stored as digests only.

A stored password hash has the current cost, and is used instead of a weaker configured hash.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, delete, insert, or_, select, update

from trax.records.audit import SignIn, WebSession
from trax.records.nouns import SessionFilter
from trax.store import dialect
from trax.store.dialect import among, id_document
from trax.store.listing import RecordQuery, Search, equal_to
from trax.store.schema import tables
from trax.store.types import storable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Row, Select

    from trax.records.audit import NewWebSession


class StoredSession(NamedTuple):
    """A session, and the proof that ties it to the password used at sign-in."""

    session: WebSession
    proof: str


def insert_session(
    connection: Connection, new: NewWebSession, *, now: datetime, expires_at: datetime
) -> WebSession:
    """Insert a session, and delete expired ones."""
    purge(connection, now=now)
    session = tables(connection).web_session
    row: dict[str, Any] = {name: storable(value) for name, value in asdict(new).items()}
    times = {"created_at": now, "last_seen_at": now, "expires_at": expires_at}
    statement = insert(session).values(**row, **times).returning(session)
    return _record(connection.execute(statement).one())


def load(connection: Connection, key: str, *, now: datetime) -> StoredSession | None:
    """Load the session with this secret digest, unless it has expired."""
    session = tables(connection).web_session
    query = select(session).where(session.c.key == key, session.c.expires_at > now)
    row = connection.execute(query).one_or_none()
    return StoredSession(_record(row), row.proof) if row else None


def mark_seen(connection: Connection, session_id: int, *, now: datetime, expires_at: datetime) -> None:
    """Write that a session was used; one that has expired stays so."""
    session = tables(connection).web_session
    is_open = (session.c.id == session_id) & (session.c.expires_at > now)
    connection.execute(update(session).where(is_open).values(last_seen_at=now, expires_at=expires_at))


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


class CurrentSessions(SessionFilter):
    """Filters for sessions that have not expired `now`."""

    now: datetime


def _search(connection: Connection, filters: CurrentSessions) -> Search:
    session = tables(connection).web_session
    is_current = session.c.expires_at > filters["now"]
    return Search(table=session, unindexed=[is_current, *equal_to(session, filters, "user")])


SESSIONS: Final = RecordQuery(search=_search, records=_select_records, record=_record)


@dataclass(frozen=True, slots=True)
class StoredPassword:
    """The hash of a user's password; `proof` ties it to the configured hash in whose place it is used."""

    user: str
    hash: str = field(repr=False)
    proof: str = field(repr=False)


def load_passwords(connection: Connection, *, app: str) -> list[StoredPassword]:
    """Load the rows of an app: at most one for each of its users.

    On SQLite, a row edited by hand may contain other types than text. Such a row is left out.
    """
    password = tables(connection).web_password
    query = select(password.c.user, password.c.hash, password.c.proof).where(password.c.app == app)
    rows = connection.execute(query).all()
    return [StoredPassword(*row) for row in rows if all(isinstance(value, str) for value in row)]


def write_password(connection: Connection, new: StoredPassword, *, app: str, now: datetime) -> None:
    """Insert the row of a user, or replace it. If two servers write at once, either row is good."""
    password = tables(connection).web_password
    statement = dialect.insert(connection, password).values(app=app, **asdict(new), updated_at=now)
    changes = {name: statement.excluded[name] for name in ("hash", "proof", "updated_at")}
    connection.execute(statement.on_conflict_do_update(index_elements=["app", "user"], set_=changes))


def delete_void_passwords(connection: Connection, void: Collection[StoredPassword], *, app: str) -> None:
    """Delete these rows, except those that another server has replaced since they were read."""
    if not void:
        return
    password = tables(connection).web_password
    is_void = or_(*(and_(password.c.user == row.user, password.c.proof == row.proof) for row in void))
    connection.execute(delete(password).where(password.c.app == app, is_void))
