"""Waiting with a timeout, and durations as text."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from trax.clock import TextDuration, format_duration, is_set_within, parse_duration


async def test_an_event_is_waited_for_so_long() -> None:
    event = asyncio.Event()
    assert not await is_set_within(event, 0)

    event.set()
    assert await is_set_within(event, None)


@pytest.mark.parametrize("steps", range(4))
async def test_a_cancellation_is_not_lost_when_the_event_comes_at_the_same_moment(steps: int) -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(is_set_within(event, 30))
    await asyncio.sleep(0)

    event.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    was_done = waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled() or was_done


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "250 ms"),
        (2, "2 s"),
        (1.5, "1.5 s"),
        (60.5, "1 min 0.5 s"),
        (1200, "20 min"),
        (5400, "1 h 30 min"),
        (86_400, "1 day"),
        (2 * 86_400 + 5, "2 days 5 s"),
        (-90, "-1 min 30 s"),
    ],
)
def test_a_duration_is_written_exactly(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00001, "<0.1 ms"),
        (0.0124, "12 ms"),
        (1.44, "1.4 s"),
        (59.9, "59 s"),
        (86_459, "1 day"),
        (7505, "2 h 5 min"),
    ],
)
def test_a_measured_duration_has_two_adjacent_units_at_most(seconds: float, text: str) -> None:
    assert format_duration(seconds, units=2) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", timedelta(seconds=90)),
        (".5", timedelta(seconds=0.5)),
        ("90s", timedelta(seconds=90)),
        ("25 min", timedelta(minutes=25)),
        ("1h30m", timedelta(minutes=90)),
        ("1 h 30 min", timedelta(minutes=90)),
        ("2 days", timedelta(days=2)),
        ("1 Week", timedelta(weeks=1)),
        ("0:01:30", timedelta(seconds=90)),
        ("1 day, 0:01:30", timedelta(days=1, seconds=90)),
        ("PT20M", timedelta(minutes=20)),
        ("P1DT2H", timedelta(hours=26)),
        (" -5s ", timedelta(seconds=-5)),
    ],
)
def test_a_duration_is_read_in_every_form(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "5 parsecs",
        "P",
        "PT",
        "PT20",
        "1h 1h",
        "nan",
        "inf",
        "1e3",
        "--5",
        "9" * 400,
        "0:99:00",
        "9" * 30,
    ],
)
def test_other_text_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 90s, 25 min, 1h30m or 2 days"):
        parse_duration(text)


@given(st.timedeltas(timedelta(days=-30_000), timedelta(days=30_000)))
def test_a_formatted_duration_can_be_parsed_again(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize("value", ["90s", "1m30s", "PT1M30S", "0:01:30", 90, timedelta(seconds=90)])
def test_a_field_accepts_every_form_of_a_duration_and_json_has_one(value: object) -> None:
    field = TypeAdapter(TextDuration)

    assert field.dump_json(field.validate_python(value)) == b'"1 min 30 s"'
