"""Column types that mean the same in both dialects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, DateTime, Integer, String, Text, cast, literal_column
from sqlalchemy.types import TypeDecorator, UserDefinedType

from trax.store.text import searchable

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Dialect
    from sqlalchemy.sql.operators import OperatorType
    from sqlalchemy.types import TypeEngine

SQLITE = "sqlite"
POSTGRESQL = "postgresql"

BigId = BigInteger().with_variant(Integer, SQLITE)
"""64 bits in both dialects; SQLite auto-increments only a column spelled INTEGER."""

C_ORDER = Text().with_variant(Text(collation="C"), POSTGRESQL)


class SearchedText(TypeDecorator[str]):
    """Text to compare a column with. Text that cannot be stored matches nothing and raises no error."""

    impl = C_ORDER
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else searchable(value)


class ComparedText(Text):
    """A text column. Written values go to the driver unchanged, compared values as `SearchedText`."""

    def coerce_compared_value(self, op: OperatorType | None, value: Any) -> TypeEngine[Any]:
        return SearchedText() if isinstance(value, str) else super().coerce_compared_value(op, value)


ByteOrderText = ComparedText().with_variant(Text(collation="C"), POSTGRESQL)
"""Text sorted by bytes, as in SQLite, independent of the server's locale.

Indexes therefore stay valid when an upgrade of the operating system changes its collations.
"""


class Utc(TypeDecorator[datetime]):
    """An aware datetime in UTC. In SQLite it is stored as sortable text of fixed width."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return String(27) if dialect.name == SQLITE else DateTime(timezone=True)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        return utc_text(value) if dialect.name == SQLITE else in_utc(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        if isinstance(value, str):
            return datetime.fromisoformat(value)
        return value if value.tzinfo is UTC else value.astimezone(UTC)


class Json(UserDefinedType[str]):
    r"""JSON that stays text in Python: pydantic writes and reads it.

    PostgreSQL's `json` and not `jsonb`, which would reject \u0000, reorder keys and cost more to write.
    """

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"

    def column_expression(self, colexpr: ColumnElement[Any]) -> ColumnElement[Any]:
        return cast(colexpr, Text)


JsonText = Json().with_variant(Text(), SQLITE)


def sql_literal(value: str) -> ColumnElement[str]:
    """Return a constant as a SQL literal: with a bound parameter, partial indexes would not be used."""
    return literal_column(f"'{value}'", Text)


def in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; give an aware datetime such as datetime.now(UTC)")
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


def utc_text(moment: datetime) -> str:
    """`2026-11-15T04:50:00.123456Z`: always 27 characters, so that it sorts by time."""
    return in_utc(moment).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
