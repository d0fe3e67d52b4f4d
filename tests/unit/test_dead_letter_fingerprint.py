"""The same failure has the same fingerprint, with any numbers, ids and names in its message."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trax.records.dead_letter import FINGERPRINT_CHARACTERS, fingerprint, normalise

words = st.text(string.ascii_letters + " ", min_size=1).filter(str.strip)
quotable = st.text(st.characters(exclude_characters="'\"`\n«»", exclude_categories=("Cs",)), max_size=50)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("row 17 of 90 is broken", "row 8 of 1,000.50 is broken"),
        ("no user 'ada'", "no user 'grace hopper'"),
        ('no table "a"', 'no table "b"'),
        ("object at 0x7f3a2b10", "object at 0x55d0"),
        ("job 0190f3a2-1b2c-7d3e-8f40-123456789abc", "job 0190ffff-0000-7aaa-8bbb-cba987654321"),
        ("commit 3fa9c81d2", "commit 0be11e77aa"),
        ("at 2027-03-01T12:00:05Z", "at 2026-12-24T23:59:59Z"),
        ("timed  out\nafter 3 s", "timed out after 12 s"),
        ("The disk is full", "the disk is FULL"),
    ],
)
def test_variable_parts_of_a_failure_do_not_count(one: str, other: str) -> None:
    assert fingerprint("t", "E", "j", one) == fingerprint("t", "E", "j", other)


@pytest.mark.parametrize(
    "other",
    [
        ("u", "E", "j", "the disk is full"),
        ("t", "F", "j", "the disk is full"),
        ("t", "E", "k", "the disk is full"),
        ("t", "E", "j", "the disk is gone"),
        ("t", None, None, None),
    ],
)
def test_another_train_error_junction_or_message_is_another_failure(other: tuple[str, ...]) -> None:
    assert fingerprint(*other) != fingerprint("t", "E", "j", "the disk is full")


@given(words, st.integers(min_value=0), st.integers(min_value=0))
def test_numbers_never_count(text: str, one: int, other: int) -> None:
    assert normalise(f"{text} {one}") == normalise(f"{text} {other}")


@given(words, quotable, quotable)
def test_quoted_text_does_not_count(text: str, one: str, other: str) -> None:
    assert normalise(f"{text} '{one}'") == normalise(f"{text} '{other}'")


@given(st.text(), st.text(), st.text(), st.text())
def test_any_text_has_a_fingerprint(train: str, exception: str, junction: str, reason: str) -> None:
    made = fingerprint(train, exception, junction, reason)

    assert len(made) == FINGERPRINT_CHARACTERS
    assert made == fingerprint(train, exception, junction, reason)


@given(st.text())
def test_normalising_twice_changes_nothing(reason: str) -> None:
    once = normalise(reason)

    assert normalise(once) == once
