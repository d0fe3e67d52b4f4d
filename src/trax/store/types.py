"""Column types for both dialects, text that is safe to store and search, and errors without row contents."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, overload
from typing import cast as cast_type

from pydantic_core import from_json
from sqlalchemy import BigInteger, DateTime, Integer, String, Text, cast, literal_column
from sqlalchemy.types import TypeDecorator, UserDefinedType

from trax.bounds import LATEST
from trax.masking import HIDDEN, SECRET_KEY, mask_stored

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Dialect
    from sqlalchemy.sql.operators import OperatorType
    from sqlalchemy.types import TypeEngine


UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")

QUOTED: Final = re.compile('".*"', re.DOTALL)

DATA_EXCEPTION: Final = "22"

UNREADABLE: Final = "(unreadable JSON)"

UNMATCHABLE: Final = "\x01\uffff"
"""Never matches a name, since names are printable. Sorts before all printable text, as NUL does."""


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
        if isinstance(value, datetime):
            return value if value.tzinfo is UTC else value.astimezone(UTC)
        return _read_moment(value)


def _read_moment(value: Any) -> datetime:
    """A time stored in SQLite. Other text, in a row edited by hand, is read as the latest time."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return LATEST
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class Json(UserDefinedType[str]):
    r"""JSON that stays text in Python: pydantic writes and reads it.

    PostgreSQL's `json` and not `jsonb`, which would reject \u0000, reorder keys and cost more to write.
    """

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"

    def column_expression(self, colexpr: ColumnElement[Any]) -> ColumnElement[Any]:
        return cast(colexpr, Text)


class TransactionId(UserDefinedType[str]):
    """The 64-bit id of a PostgreSQL transaction; text in Python."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "XID8"


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


@overload
def storable(text: str) -> str: ...


@overload
def storable(text: None) -> None: ...


@overload
def storable(text: str | None) -> str | None: ...


def storable(text: str | None) -> str | None:
    """Replace what PostgreSQL rejects, NUL and lone surrogates, by a replacement character.

    An error message with raw bytes must not prevent the run from being recorded.
    """
    if text is None or (text.isprintable() and text.isascii()):
        return text
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def searchable(text: str) -> str:
    """Convert text to a lookup parameter: text that cannot be stored matches nothing and raises no error."""
    return text if text.isascii() and text.isprintable() else UNSTORABLE.sub(UNMATCHABLE, text)


def hide_rows(error: BaseException | None) -> str:
    """Return a driver error's message without row contents, and remove them from the error itself.

    PostgreSQL shows row contents in DETAIL and CONTEXT, and an invalid value (class 22) in quotes. A
    connection error has no SQLSTATE and is not changed.
    """
    current: BaseException | None = error
    while current is not None:
        if getattr(current, "sqlstate", None):
            current.args = (_message_without_rows(current),)
            if getattr(current, "detail", None):
                current.detail = None  # pyright: ignore[reportAttributeAccessIssue] - asyncpg appends it to the message
        current = current.__cause__
    return str(error).strip()


def hide_statement(error: Any) -> str:
    """Like `hide_rows`, for a SQLAlchemy error, which repeats the driver's message and may add parameters."""
    orig: Any = error.orig
    message = hide_rows(orig)
    error.args = (f"({orig.__class__.__module__}.{orig.__class__.__name__}) {message}",)
    error.hide_parameters = True
    return message


def _message_without_rows(error: Any) -> str:
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    message: str = primary or next(iter(str(error).strip().splitlines()), "")
    return QUOTED.sub(f'"{HIDDEN}"', message) if error.sqlstate.startswith(DATA_EXCEPTION) else message


def parse_json(text: str | None) -> Any:
    """Parse a stored document; invalid JSON, in a row edited by hand, is shown as `UNREADABLE`."""
    if text is None:
        return None
    try:
        value = from_json(text)
    except (TypeError, ValueError):
        value = _parse_loosely(text)
    return mask_stored(value) if SECRET_KEY in str(text) else value


def _parse_loosely(text: Any) -> Any:
    """A lone surrogate cannot be encoded in a response: it becomes `?`."""
    try:
        return from_json(json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace"))
    except (RecursionError, TypeError, ValueError):
        return UNREADABLE


def parse_list(text: str | None) -> tuple[Any, ...]:
    """Parse a stored list; anything else is empty."""
    value = parse_json(text)
    return tuple(cast_type("list[Any]", value)) if isinstance(value, list) else ()


def parse_names(text: str | None) -> tuple[str, ...]:
    """Parse a stored list of names; anything else is empty."""
    return tuple(map(str, parse_list(text)))


def parse_mapping(text: str | None) -> dict[str, Any]:
    """Parse a stored object; anything else is empty."""
    value = parse_json(text)
    return cast_type("dict[str, Any]", value) if isinstance(value, dict) else {}
