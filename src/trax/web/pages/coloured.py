"""JSON with syntax colours: pieces of text with their kinds. The template escapes each piece."""

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
"""Longer values are cut, so that the page loads fast; the full JSON is one link away."""


class Piece(NamedTuple):
    """A piece of text and its kind: `k`ey, `s`tring, `n`umber, `w`ord, or empty."""

    kind: str
    text: str


def json_pieces(value: Any) -> list[Piece]:
    """Format a value as indented JSON in pieces; long values are cut."""
    whole = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    text = whole[:SHOWN_CHARACTERS]
    pieces: list[Piece] = []
    end = 0
    matches = list(islice(PIECES.finditer(text), SHOWN_PIECES + 1))
    for match in matches[:SHOWN_PIECES]:
        if match.start() > end:
            pieces.append(Piece("", text[end : match.start()]))
        pieces.append(Piece(match.lastgroup or "", match.group()))
        end = match.end()
    if len(matches) <= SHOWN_PIECES:
        pieces.append(Piece("", text[end:]))
        end = len(text)
    if end < len(whole):
        pieces.append(Piece("", f"\n… {len(whole) - end:,} characters more"))
    return [piece for piece in pieces if piece.text]
