r"""Escape control characters in text from outside before it is shown in a terminal, a log or a page.

A name, a failure reason, a log line or a request path may hold control characters (C0, C1, DEL), marks that
change the text direction, line separators or a lone surrogate. They become visible escapes (`\x1b`,
`\u202e`).
"""

from __future__ import annotations

import re
from typing import Final

JOINERS: Final = "\u200c\u200d"
"""Invisible, but needed to write words of some scripts and some emoji."""
SPACES: Final = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
PLAIN: Final = re.compile(f"[{JOINERS}{SPACES}]")


def visible_text(text: str, *, keep: str = "") -> str:
    r"""Replace each unprintable character by an escape, except those in `keep`.

    A backslash is not escaped, so the result cannot be converted back.
    """
    if text.isprintable():
        return text
    return "".join(char if _is_harmless(char) or char in keep else _escape(char) for char in text)


def visible_json(document: str) -> str:
    r"""Replace unprintable characters in a JSON document by JSON escapes (`\u202e`); its value stays."""
    if document.isprintable():
        return document
    return "".join(char if _is_harmless(char) or char == "\n" else _json_escape(char) for char in document)


def _is_harmless(one: str) -> bool:
    return one.isprintable() or PLAIN.match(one) is not None


def _escape(one: str) -> str:
    return one.encode("unicode_escape").decode()


def _json_escape(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
