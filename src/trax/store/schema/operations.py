"""Tables `worker…`, `setting`, `audit`, `web_…`, `tally`, `group_tally`, and the tables that servers lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, false

from trax.records.audit import SignIn, Via
from trax.records.stats import Span
from trax.records.worker import WorkerKind
from trax.store.schema.define import identity
from trax.store.types import SQLITE, BigId, ByteOrderText, JsonText, Utc

if TYPE_CHECKING:
    from sqlalchemy import Table

    from trax.store.schema.define import Definer


HEARTBEAT_TABLE = {"fillfactor": 50, "autovacuum_vacuum_threshold": 200, "autovacuum_vacuum_scale_factor": 0}
"""Storage options for a small table with frequent updates: free space on each page avoids index updates."""


def worker(define: Definer) -> Table:
    return define.table(
        "worker",
        identity(),
        Column("host", ByteOrderText, nullable=False),
        Column("host_environment", ByteOrderText, nullable=False),
        Column("host_instance_id", ByteOrderText, nullable=False),
        Column("host_labels", JsonText),
        Column("pid", Integer, nullable=False),
        Column("version", ByteOrderText, nullable=False, server_default=""),
        Column("app_version", ByteOrderText, nullable=False, server_default=""),
        Column("app", ByteOrderText, nullable=False, server_default="default"),
        Column("declares", ByteOrderText),
        Column("concurrency", Integer, nullable=False),
        Column("dispatches", Boolean, nullable=False, server_default=false()),
        Column("kind", ByteOrderText, nullable=False, server_default="worker"),
        Column("trains", JsonText, nullable=False),
        Column("aliases", JsonText),
        Column("groups", JsonText),
        Column("routes", JsonText),
        Column("settings", JsonText),
        Column("failing_loops", JsonText),
        Column("plain_fields", JsonText),
        Column("started_at", Utc, nullable=False),
        Column("heartbeat_at", Utc, nullable=False),
        define.one_of("kind", WorkerKind),
        define.check("concurrency_range", "concurrency >= 0"),
        storage=HEARTBEAT_TABLE,
    )


def worker_identity(define: Definer) -> Table:
    """Where a worker runs or ran. It outlives the worker, as long as there may be a record that names it.

    `last_run_id` is set when the worker is gone: none of its runs has a higher id.
    """
    table = define.table(
        "worker_identity",
        Column("worker_id", BigId, primary_key=True, autoincrement=False),
        Column("host_environment", ByteOrderText, nullable=False),
        Column("host_instance_id", ByteOrderText, nullable=False),
        Column("host_labels", JsonText),
        Column("last_run_id", BigId),
    )
    define.index("worker_identity_left_idx", table.c.last_run_id, where="last_run_id IS NOT NULL")
    return table


LOCKS: Final = ("gate", "leader", "settings", "cleanup", "totals")
"""What only one server at a time does. On SQLite the write transaction is the lock."""

_TAKE_GATE_LOCK: Final = (
    "CREATE FUNCTION trax.take_gate_lock() RETURNS void LANGUAGE plpgsql AS $$BEGIN "
    "LOCK TABLE trax.gate_lock IN SHARE UPDATE EXCLUSIVE MODE; END$$"
)
_TAKE_LOCK: Final = (
    "CREATE FUNCTION trax.take_lock(name text) RETURNS void LANGUAGE plpgsql AS $$BEGIN "
    "EXECUTE 'LOCK TABLE trax.' || quote_ident(name || '_lock') || ' IN SHARE UPDATE EXCLUSIVE MODE'; END$$"
)
_TRY_LOCK: Final = (
    "CREATE FUNCTION trax.try_lock(name text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN "
    "EXECUTE 'LOCK TABLE trax.' || quote_ident(name || '_lock') || ' IN SHARE UPDATE EXCLUSIVE MODE NOWAIT'; "
    "RETURN true; EXCEPTION WHEN lock_not_available THEN RETURN false; END$$"
)


def locks(define: Definer) -> None:
    """Empty tables that servers lock, and the functions that lock them.

    Everyone who may connect can take an advisory lock, and sees its key in `pg_locks`. A table can be locked
    in this mode only by whoever may update it; readers and backups do not conflict with it, and it writes
    nothing. The functions run with the rights of the caller.
    """
    if define.dialect != SQLITE:
        made = [define.table(f"{name}_lock", Column("id", BigId)) for name in LOCKS]
        for statement in (_TAKE_GATE_LOCK, _TAKE_LOCK, _TRY_LOCK):
            define.statement(made[-1], statement)


def setting(define: Definer) -> Table:
    return define.table(
        "setting",
        Column("name", ByteOrderText, primary_key=True),
        Column("value", JsonText, nullable=False),
        Column("updated_at", Utc, nullable=False),
    )


def audit(define: Definer) -> Table:
    table = define.table(
        "audit",
        identity(),
        Column("at", Utc, nullable=False),
        Column("actor", ByteOrderText, nullable=False),
        Column("via", ByteOrderText, nullable=False),
        Column("action", ByteOrderText, nullable=False),
        Column("noun", ByteOrderText, nullable=False),
        Column("ids", JsonText, nullable=False),
        Column("targets", Integer, nullable=False),
        Column("before", JsonText),
        Column("after", JsonText),
        Column("restores", JsonText),
        Column("expects", JsonText),
        Column("reason", ByteOrderText),
        # No foreign keys: an old entry may be deleted before the one that undid it.
        Column("undoes", BigId),
        Column("undone_by", BigId),
        define.one_of("via", Via),
        define.check("targets_range", "targets >= 0"),
    )
    column = table.c
    define.index("audit_actor_idx", column.actor, column.id)
    define.index("audit_action_idx", column.action, column.id)
    define.index("audit_noun_idx", column.noun, column.id)
    return table


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


def web_password(define: Definer) -> Table:
    return define.table(
        "web_password",
        Column("app", ByteOrderText, primary_key=True),
        Column("user", ByteOrderText, primary_key=True),
        Column("hash", ByteOrderText, nullable=False),
        Column("proof", ByteOrderText, nullable=False),
        Column("updated_at", Utc, nullable=False),
    )


def tally(define: Definer) -> Table:
    """Totals per minute or hour, and train."""
    return define.table(
        "tally",
        Column("span", ByteOrderText, primary_key=True),
        Column("at", Utc, primary_key=True),
        Column("train", ByteOrderText, primary_key=True),
        *_total_columns(),
        define.one_of("span", Span),
        clustered=True,
    )


def group_tally(define: Definer) -> Table:
    """Totals per group since counting began. The row of a deleted group stays."""
    return define.table(
        "group_tally",
        Column("group_id", BigId, primary_key=True, autoincrement=False),
        *_total_columns(),
        Column("last_run_at", Utc, nullable=False),
    )


def _total_columns() -> list[Column[Any]]:
    counts = [Column(name, BigInteger, nullable=False) for name in ("completed", "failed", "cancelled")]
    return [*counts, Column("seconds", Float, nullable=False)]
