"""Text that both databases can hold."""

from __future__ import annotations

import re
from typing import Final, overload

UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
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
