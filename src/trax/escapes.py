r"""Text from elsewhere, made safe to show: what could steer a terminal or reorder a line becomes an escape.

A name, a failure reason, a log line or a request path may hold control characters (C0, C1, DEL), marks that
change the direction of text, line separators or half of a surrogate pair. They stay readable (`\x1b`,
`\u202e`) and do nothing.
"""

from __future__ import annotations

import re
from typing import Final

JOINERS: Final = "\u200c\u200d"
"""Invisible, and part of how words of some scripts and some emoji are written."""
SPACES: Final = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
PLAIN: Final = re.compile(f"[{JOINERS}{SPACES}]")


def visible_text(text: str, *, keep: str = "") -> str:
    r"""The text with an escape for each character that is not to be obeyed; those in `keep` stay.

    A backslash stays as it is: the result is to be read, not to be turned back.
    """
    if text.isprintable():
        return text
    return "".join(one if _is_harmless(one) or one in keep else _escape(one) for one in text)


def visible_json(document: str) -> str:
    r"""The same for a JSON document, which still says the same: in its strings `\u202e` is JSON's own."""
    if document.isprintable():
        return document
    return "".join(one if _is_harmless(one) or one == "\n" else _json_escape(one) for one in document)


def _is_harmless(one: str) -> bool:
    return one.isprintable() or PLAIN.match(one) is not None


def _escape(one: str) -> str:
    return one.encode("unicode_escape").decode()


def _json_escape(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
