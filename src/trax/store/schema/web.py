"""Tables `web_session` (dashboard sign-ins) and `web_link` (one-time sign-in links)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column

from trax.records.web_session import SignIn
from trax.store.schema.define import identity
from trax.store.types import ByteOrderText, Utc

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer


def web_session(define: Definer) -> Table:
    table = define.table(
        "web_session",
        identity(),
        Column("key", ByteOrderText, nullable=False),
        Column("user", ByteOrderText, nullable=False),
        Column("role", ByteOrderText, nullable=False),
        Column("means", ByteOrderText, nullable=False),
        Column("proof", ByteOrderText, nullable=False),
        Column("address", ByteOrderText, nullable=False),
        Column("user_agent", ByteOrderText, nullable=False),
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
        Column("key", ByteOrderText, primary_key=True),
        Column("created_at", Utc, nullable=False),
        Column("expires_at", Utc, nullable=False),
    )
