"""What could steer a terminal or reorder a line is written as an escape, and nothing else is touched."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trax.escapes import visible_json, visible_text
from trax.worker.capture import JsonLines, TextLines

STEERING = {
    "\x00": r"\x00",
    "\x07": r"\x07",
    "\x1b": r"\x1b",
    "\r": r"\r",
    "\x7f": r"\x7f",
    "\x85": r"\x85",
    "\x9b": r"\x9b",
    "\u200e": r"\u200e",
    "\u200f": r"\u200f",
    "\u061c": r"\u061c",
    "\u2028": r"\u2028",
    "\u2029": r"\u2029",
    **{chr(code): f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    "\ufeff": r"\ufeff",
    "\ud800": r"\ud800",
    "\U000e0041": r"\U000e0041",
}
"""Each as it is shown: C0, C1, DEL, marks of direction, separators, invisible tags, half of a pair."""
HARMLESS = ["", "Ada", "Zoë ☕ 東京", "नमस्ते\u200d", "👩\u200d💻", "1\u00a0000", "שלום", "C:\\temp\\new"]


@pytest.mark.parametrize(("one", "shown"), STEERING.items(), ids=ascii)
def test_control_characters_are_shown_escaped(one: str, shown: str) -> None:
    assert visible_text(f"a{one}b") == f"a{shown}b"
    assert visible_text(one, keep=one) == one


@pytest.mark.parametrize("text", HARMLESS, ids=ascii)
def test_words_of_any_language_stay_as_they_are(text: str) -> None:
    assert visible_text(text) == visible_json(text) == text


@given(
    st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_escaped_json_has_the_same_value(value: Any) -> None:
    document = json.dumps(value, ensure_ascii=False, indent=2)

    shown = visible_json(document)

    assert json.loads(shown) == value
    assert not set(shown) & set(STEERING)


@pytest.mark.parametrize("lines", [TextLines, JsonLines])
def test_no_log_line_steers_the_terminal_that_shows_it(lines: type[logging.Formatter]) -> None:
    said = "".join(STEERING)
    record = logging.makeLogRecord({"msg": f"hello {said}\nfalse line", "name": f"jobs{said}", "train": said})
    with pytest.raises(ValueError, match="why") as raised:
        raise ValueError(f"why {said}")
    record.exc_info = (raised.type, raised.value, raised.tb)

    line = lines().format(record)

    assert not set(line) & set(STEERING)
    assert r"\x1b" in line or r"\u001b" in line
    assert r"\u202e" in line
    if lines is JsonLines:
        assert "\n" not in line
        assert json.loads(line)["message"].startswith("hello \x00")
    else:
        assert all(below.startswith("  ") for below in line.split("\n")[1:])


@pytest.mark.parametrize("lines", [TextLines, JsonLines])
def test_an_access_log_line_shows_the_path_escaped(lines: type[logging.Formatter]) -> None:
    """As uvicorn logs it, should a server in front of it have decoded the path already."""
    arguments = ("127.0.0.1:80", "GET", "/x\x1b[2J\u202e\r\n127.0.0.1 - forged", "1.1", 404)
    record = logging.makeLogRecord(
        {"name": "uvicorn.access", "msg": '%s - "%s %s HTTP/%s" %d', "args": arguments}
    )

    line = lines().format(record)

    assert not set(line) & {*STEERING, "\n"}
    assert "forged" in line
