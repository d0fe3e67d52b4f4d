"""Values as people read and type them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trax.clock import format_distance
from trax.errors import TraxError
from trax.records.schedule import Calendar, DateRange, Dates, DaysOfWeek, Exclusion, TimeWindow
from trax.settings import Settings
from trax.web.pages import formats
from trax.web.pages.formats import describe_exclusion, duration, json_pieces, whole_number
from trax.web.pages.settings import format_setting, parse_setting

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, formats.NO_VALUE),
        (0.0, "0 s"),
        (0.00001, "<0.1 ms"),
        (0.00042, "0.4 ms"),
        (0.00102, "1 ms"),
        (0.0124, "12 ms"),
        (0.9998, "1 s"),
        (1.44, "1.4 s"),
        (59, "59 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (7500, "2 h 5 min"),
        (90061, "1 day 1 h"),
    ],
)
def test_a_length_of_time_is_short_and_precise_enough(seconds: float | None, said: str) -> None:
    assert formats.span(seconds) == said


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        (timedelta(), "now"),
        (timedelta(seconds=-5), "5 s ago"),
        (timedelta(minutes=-61), "1 h ago"),
        (timedelta(days=2), "in 2 days"),
    ],
)
def test_a_moment_is_shown_by_its_distance(apart: timedelta, said: str) -> None:
    assert format_distance(NOON + apart, NOON, units=1) == said


@pytest.mark.parametrize(
    ("part", "said"),
    [(None, formats.NO_VALUE), (1.0, "100 %"), (0.9999, "99.9 %"), (0.8, "80 %"), (0.0, "0 %")],
)
def test_a_share_is_never_rounded_up_to_all(part: float | None, said: str) -> None:
    assert formats.share(part) == said


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(json_values)
def test_json_in_colour_is_the_same_json(value: Any) -> None:
    assert json.loads("".join(piece.text for piece in json_pieces(value))) == value


def test_the_pieces_of_json_know_what_they_are() -> None:
    pieces = json_pieces({"name": 'a "quote"', "count": -1.5, "on": True, "off": None})

    assert [(piece.kind, piece.text) for piece in pieces if piece.kind] == [
        ("k", '"name"'),
        ("s", '"a \\"quote\\""'),
        ("k", '"count"'),
        ("n", "-1.5"),
        ("k", '"on"'),
        ("w", "true"),
        ("k", '"off"'),
        ("w", "null"),
    ]


def test_a_very_long_value_is_cut_and_marked() -> None:
    for value in (["x" * 30_000], list(range(5_000))):
        pieces = json_pieces(value)

        assert len("".join(piece.text for piece in pieces)) < 4_100
        assert len(pieces) < 510
        assert pieces[-1].text.endswith("characters more")


def test_a_long_traceback_is_shown_by_its_beginning_and_its_end() -> None:
    whole = "first line\n" + "frame\n" * 5_000 + "ValueError: no"
    shown = formats.excerpt(whole)

    assert shown.startswith("first line")
    assert shown.endswith("ValueError: no")
    assert len(shown) < 5_100
    assert formats.excerpt("short") == "short"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("5m", 300), ("2 h", 7200), ("1d", 86400), ("0.5s", 0.5)]
)
def test_common_forms_of_durations_can_be_typed(text: str, seconds: float) -> None:
    assert duration("Delay", text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["soon", "5 parsecs"])
def test_an_invalid_duration_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(TraxError, match="Delay: expected a duration such as 90s, 25 min"):
        duration("Delay", text)


@pytest.mark.parametrize("text", ["-1", "99999d"])
def test_a_length_of_time_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(TraxError, match="Delay: it must be from 0 s to 68 years"):
        duration("Delay", text)


def test_nothing_typed_is_nothing() -> None:
    assert (duration("Delay", ""), whole_number("Priority", "")) == (None, None)


@pytest.mark.parametrize("text", ["-1", "1.5", "many", "²", "9" * 5000])
def test_an_invalid_whole_number_is_refused(text: str) -> None:
    with pytest.raises(TraxError, match="not a whole number"):
        whole_number("Priority", text)


@pytest.mark.parametrize(
    ("exclusion", "said"),
    [
        (DaysOfWeek((5, 6)), "on Saturdays and Sundays"),
        (Dates((date(2026, 12, 25),)), "on 2026-12-25"),
        (DateRange(date(2026, 12, 24), date(2027, 1, 2)), "from 2026-12-24 to 2027-01-02"),
        (TimeWindow(time(22), time(6)), "from 22:00 to 06:00"),
        (Calendar("open", (DaysOfWeek((0,)),), only=True), "outside the calendar open (on Mondays)"),
    ],
)
def test_when_nothing_runs_is_one_line(exclusion: Exclusion, said: str) -> None:
    assert describe_exclusion(exclusion) == said


@pytest.mark.parametrize(
    ("name", "stored", "text"),
    [
        ("default_retry_delay", "5 min", "5 min"),
        ("heartbeat_interval", "1.5 s", "1.5 s"),
        ("max_active_jobs", 10, "10"),
        ("max_active_jobs", None, ""),
        ("save_inputs", False, "off"),
        ("capture_logs", None, "none"),
        ("metadata_cleanup_trains", ["a", "b"], "a, b"),
    ],
)
def test_a_setting_is_typed_as_it_is_shown(name: str, stored: Any, text: str) -> None:
    assert format_setting(name, stored) == text
    assert Settings.from_values({name: parse_setting(name, text)}) == Settings.from_values({name: stored})


def test_a_setting_that_depends_on_another_is_shown() -> None:
    assert format_setting("heartbeat_interval", "1 min") == "1 min"


@pytest.mark.parametrize(
    ("max_retries", "said"), [(0, "the first failure"), (1, "the first failure"), (3, "3 failures in a row")]
)
def test_how_patient_a_job_is(max_retries: int, said: str) -> None:
    assert formats.failure_limit(max_retries) == said


def test_a_moment_in_a_table_has_seconds_only_where_there_are_some() -> None:
    moment = datetime(2027, 3, 1, 5, 30, tzinfo=UTC)

    assert formats.short(moment) == "Mon 01 Mar 05:30"
    assert formats.short(moment.replace(second=7)) == "Mon 01 Mar 05:30:07"
