"""Text that both databases can hold."""

from __future__ import annotations

from typing import overload


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
