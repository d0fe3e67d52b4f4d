"""Make text storable and searchable, and remove row contents from database errors."""

from __future__ import annotations

import re
from typing import Any, Final, overload

from trax.masking import HIDDEN

UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
QUOTED: Final = re.compile('".*"', re.DOTALL)
DATA_EXCEPTION: Final = "22"
NOWHERE: Final = "\x01\uffff"
"""Never matches a name, since names are printable. Sorts before all printable text, as NUL does."""


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
    return text if text.isascii() and text.isprintable() else UNSTORABLE.sub(NOWHERE, text)


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
    said = hide_rows(orig)
    error.args = (f"({orig.__class__.__module__}.{orig.__class__.__name__}) {said}",)
    error.hide_parameters = True
    return said


def _message_without_rows(error: Any) -> str:
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    said: str = primary or next(iter(str(error).strip().splitlines()), "")
    return QUOTED.sub(f'"{HIDDEN}"', said) if error.sqlstate.startswith(DATA_EXCEPTION) else said
