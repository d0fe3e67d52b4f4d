"""Who is signed in to the dashboard, and links that sign somebody in once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column

from trax.records.web_session import SignIn
from trax.store.schema.define import identity
from trax.store.types import Utc, Words

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer


def web_session(define: Definer) -> Table:
    table = define.table(
        "web_session",
        identity(),
        Column("key", Words, nullable=False),
        Column("user", Words, nullable=False),
        Column("role", Words, nullable=False),
        Column("means", Words, nullable=False),
        Column("proof", Words, nullable=False),
        Column("address", Words, nullable=False),
        Column("user_agent", Words, nullable=False),
        Column("created_at", Utc, nullable=False),
        Column("last_seen_at", Utc, nullable=False),
        Column("expires_at", Utc, nullable=False),
        define.one_of("means", SignIn),
    )
    define.index("web_session_key_idx", table.c.key, unique=True)
    define.index("web_session_expires_idx", table.c.expires_at)
    return table


def web_link(define: Definer) -> Table:
    return define.table(
        "web_link",
        Column("key", Words, primary_key=True),
        Column("created_at", Utc, nullable=False),
        Column("expires_at", Utc, nullable=False),
    )
