"""JSON as text in colour: pieces of text with the kind of each. The page escapes every one of them."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

PIECES: Final = re.compile(
    r'(?P<k>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<s>"(?:[^"\\]|\\.)*")|(?P<n>-?\d[\d.eE+-]*)|(?P<w>true|false|null)'
)
SHOWN_CHARACTERS: Final = 20_000
"""More is cut: a page must open quickly, and the whole is one click away as plain JSON."""


class Piece(NamedTuple):
    """Some text, and what it is: a `k`ey, a `s`tring, a `n`umber, a `w`ord, or nothing of these."""

    kind: str
    text: str


def coloured(value: Any) -> list[Piece]:
    """The value as indented JSON, piece by piece; the texts together are the JSON itself."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if len(text) > SHOWN_CHARACTERS:
        text = f"{text[:SHOWN_CHARACTERS]}\n… {len(text) - SHOWN_CHARACTERS:,} characters more"
    pieces: list[Piece] = []
    end = 0
    for found in PIECES.finditer(text):
        if found.start() > end:
            pieces.append(Piece("", text[end : found.start()]))
        pieces.append(Piece(found.lastgroup or "", found.group()))
        end = found.end()
    if text[end:]:
        pieces.append(Piece("", text[end:]))
    return pieces
