"""Helpers that define tables, checks and indexes for one dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    DDL,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    Table,
    event,
    text,
)

from trax.bounds import EARLIEST, LATEST, LONGEST_NAME, LONGEST_SECONDS
from trax.store.types import SQLITE, BigId, utc_text

if TYPE_CHECKING:
    from enum import StrEnum

    from sqlalchemy.schema import SchemaItem
    from sqlalchemy.sql.elements import ColumnElement

SCHEMA = "trax"
PREFIX = "trax_"
STATEMENTS = "statements"
"""The key in `Table.info` of the statements that a table needs after it was created."""

BUSY_TABLE = {
    "fillfactor": 46,
    "autovacuum_vacuum_scale_factor": 0.02,
    "autovacuum_vacuum_insert_scale_factor": 0.05,
    "autovacuum_analyze_scale_factor": 0.02,
    "autovacuum_vacuum_cost_delay": 0,
}
"""Storage options for tables whose rows all change once, soon after they were inserted.

The new version of a row fits on its page, which halves what is logged for it; it is a little longer, so the
pages are filled to less than a half. Vacuum runs early and fast, or scans would read dead rows.
"""


class Definer:
    """Defines tables, checks and indexes for one dialect."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.prefix = PREFIX if dialect == SQLITE else ""
        self.tables = MetaData(schema=None if dialect == SQLITE else SCHEMA)

    def table(
        self, name: str, *items: SchemaItem, storage: dict[str, Any] | None = None, clustered: bool = False
    ) -> Table:
        """Define a table; a `clustered` one is stored in key order if the dialect supports it."""
        # SQLAlchemy imports the dialect that an option names, so only those of this dialect are given.
        options: dict[str, Any] = {"postgresql_with": storage} if storage else {}
        if self.dialect == SQLITE:
            has_identity = any(isinstance(item, Column) and item.identity for item in items)
            options = {"sqlite_autoincrement": has_identity, "sqlite_with_rowid": not clustered}
        return Table(self.prefix + name, self.tables, *items, **options)

    def foreign_key(self, name: str, **options: Any) -> ForeignKey:
        schema = f"{SCHEMA}." if self.tables.schema else ""
        return ForeignKey(f"{schema}{self.prefix}{name}.id", **options)

    def index(
        self,
        name: str,
        *columns: ColumnElement[Any],
        where: str | None = None,
        unique: bool = False,
        using: str | None = None,
    ) -> None:
        """Define an index; `using` is the kind of index on PostgreSQL."""
        options: dict[str, Any] = {f"{self.dialect}_where": text(where)} if where else {}
        if using and self.dialect != SQLITE:
            options["postgresql_using"] = using
        Index(self.prefix + name, *columns, unique=unique, **options)

    def statement(self, table: Table, sql: str) -> None:
        """Run a statement after the table was created, for what SQLAlchemy cannot define; one line of SQL."""
        table.info.setdefault(STATEMENTS, []).append(sql)
        event.listen(table, "after_create", DDL(sql.replace("%", "%%")))

    def one_of(self, column: str, words: type[StrEnum]) -> CheckConstraint:
        listed = ", ".join(f"'{word}'" for word in words)
        return self.check(f"{column}_known", f"{column} IN ({listed})")

    def names_within(self, *columns: str) -> CheckConstraint:
        """Names are as short as those that callers may give: an index takes no long ones."""
        return self.check(
            "name_lengths", " AND ".join(f"length({each}) <= {LONGEST_NAME}" for each in columns)
        )

    def moments_within(self, *columns: str) -> CheckConstraint:
        """Times that Python has a value for, also after an addition: PostgreSQL has infinite ones."""
        first, last = f"'{utc_text(EARLIEST)}'", f"'{utc_text(LATEST)}'"
        ranges = [f"{each} BETWEEN {first} AND {last}" for each in columns]
        return self.check("moment_ranges", " AND ".join(ranges))

    def seconds_within(self, column: str) -> CheckConstraint:
        return self.check(f"{column}_range", f"{column} BETWEEN 0 AND {LONGEST_SECONDS}")

    def check(self, name: str, condition: str) -> CheckConstraint:
        return CheckConstraint(condition, name=name)


def identity() -> Column[int]:
    return Column("id", BigId, Identity(), primary_key=True)
