"""JSON as text in colour: pieces of text with the kind of each. The page escapes every one of them."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any, Final, NamedTuple

PIECES: Final = re.compile(
    r'(?P<k>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<s>"(?:[^"\\]|\\.)*")|(?P<n>-?\d[\d.eE+-]*)|(?P<w>true|false|null)'
)
SHOWN_CHARACTERS: Final = 4_000
SHOWN_PIECES: Final = 250
"""More is cut: a page must open quickly, and the whole is one click away as plain JSON."""


class Piece(NamedTuple):
    """Some text, and what it is: a `k`ey, a `s`tring, a `n`umber, a `w`ord, or nothing of these."""

    kind: str
    text: str


def coloured(value: Any) -> list[Piece]:
    """The value as indented JSON, piece by piece; what is long is cut."""
    whole = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    text = whole[:SHOWN_CHARACTERS]
    pieces: list[Piece] = []
    end = 0
    matches = list(islice(PIECES.finditer(text), SHOWN_PIECES + 1))
    for found in matches[:SHOWN_PIECES]:
        if found.start() > end:
            pieces.append(Piece("", text[end : found.start()]))
        pieces.append(Piece(found.lastgroup or "", found.group()))
        end = found.end()
    if len(matches) <= SHOWN_PIECES:
        pieces.append(Piece("", text[end:]))
        end = len(text)
    if end < len(whole):
        pieces.append(Piece("", f"\n… {len(whole) - end:,} characters more"))
    return [piece for piece in pieces if piece.text]
