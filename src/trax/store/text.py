"""Text that both databases can hold, and what of their own words others may read."""

from __future__ import annotations

import re
from typing import Any, Final, overload

from trax.masking import HIDDEN

UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
QUOTED: Final = re.compile('".*"', re.DOTALL)
DATA_EXCEPTION: Final = "22"
NOWHERE: Final = "\x01\uffff"
"""What no name has: names are printable. It sorts before everything printable, as NUL does."""


@overload
def storable(text: str) -> str: ...
@overload
def storable(text: None) -> None: ...
@overload
def storable(text: str | None) -> str | None: ...
def storable(text: str | None) -> str | None:
    """The text without what PostgreSQL refuses: NUL and lone surrogates become a replacement mark.

    An error message made of raw bytes must not keep its run from being recorded.
    """
    if text is None or (text.isprintable() and text.isascii()):
        return text
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def searchable(text: str) -> str:
    """The text as the parameter of a look-up: what no database can hold is found nowhere, and is no error."""
    return text if text.isascii() and text.isprintable() else UNSTORABLE.sub(NOWHERE, text)


def hide_rows(error: BaseException | None) -> str:
    """What a driver's error says, without what rows hold. The error itself says no more after that.

    PostgreSQL tells the contents of a row in DETAIL and CONTEXT, and a value that it could not read (class
    22) in quotes. What a connection could not be made for has no code, and is told as it is.
    """
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "sqlstate", None):
            seen.args = (_without_rows(seen),)
            if getattr(seen, "detail", None):
                seen.detail = None  # pyright: ignore[reportAttributeAccessIssue] - of asyncpg, which adds it
        seen = seen.__cause__
    return str(error).strip()


def hide_statement(error: Any) -> str:
    """The same for an error of SQLAlchemy, which repeats what the driver said and may add the parameters."""
    orig: Any = error.orig
    said = hide_rows(orig)
    error.args = (f"({orig.__class__.__module__}.{orig.__class__.__name__}) {said}",)
    error.hide_parameters = True
    return said


def _without_rows(error: Any) -> str:
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    said: str = primary or next(iter(str(error).strip().splitlines()), "")
    return QUOTED.sub(f'"{HIDDEN}"', said) if error.sqlstate.startswith(DATA_EXCEPTION) else said
