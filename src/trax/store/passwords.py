"""Store password hashes of dashboard users at the current cost, in place of weaker configured ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, or_, select

from trax.store import dialect
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class StoredPassword:
    """The hash of a user's password; `proof` ties it to the configured hash in whose place it is used."""

    user: str
    hash: str = field(repr=False)
    proof: str = field(repr=False)


def load_all(connection: Connection, *, app: str) -> list[StoredPassword]:
    """Load the rows of an app: at most one for each of its users.

    SQLite may return other types than text, if somebody else wrote them. Such a row is left out.
    """
    password = tables(connection).web_password
    query = select(password.c.user, password.c.hash, password.c.proof).where(password.c.app == app)
    rows = connection.execute(query).all()
    return [StoredPassword(*row) for row in rows if all(isinstance(value, str) for value in row)]


def write(connection: Connection, new: StoredPassword, *, app: str, now: datetime) -> None:
    """Insert the row of a user, or replace it. If two servers write at once, either row is good."""
    password = tables(connection).web_password
    statement = dialect.insert(connection, password).values(app=app, **asdict(new), updated_at=now)
    changes = {name: statement.excluded[name] for name in ("hash", "proof", "updated_at")}
    connection.execute(statement.on_conflict_do_update(index_elements=["app", "user"], set_=changes))


def delete_void(connection: Connection, void: Collection[StoredPassword], *, app: str) -> None:
    """Delete these rows, except those that another server has replaced since they were read."""
    if not void:
        return
    password = tables(connection).web_password
    is_void = or_(*(and_(password.c.user == row.user, password.c.proof == row.proof) for row in void))
    connection.execute(delete(password).where(password.c.app == app, is_void))
