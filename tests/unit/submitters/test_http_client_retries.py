from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trax.errors import DefinitionError
from trax.remote.http.client import CallRetry

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


def waits(patience: CallRetry, *, chance: float = 0.5, after: str | None = None) -> list[float | None]:
    return [patience.wait(retries, after, chance=chance, now=NOON) for retries in range(7)]


def test_each_wait_is_twice_as_long_up_to_a_limit_and_then_it_is_given_up() -> None:
    assert waits(CallRetry()) == [1, 2, 4, 8, 16, None, None]
    assert waits(CallRetry(max_delay=timedelta(seconds=5))) == [1, 2, 4, 5, 5, None, None]


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.75), (0.5, 1.0), (1.0, 1.25)])
def test_chance_moves_a_wait_by_a_quarter_at_the_most(chance: float, factor: float) -> None:
    assert waits(CallRetry(), chance=chance)[:2] == [factor, 2 * factor]


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        ("3", 3),
        ("0", 0),
        ("600", 30),
        (" 7 ", 7),
        ("Mon, 01 Mar 2027 12:00:09 GMT", 9),
        ("Mon, 01 Mar 2027 11:00:00 GMT", 0),
        ("Mon, 01 Mar 2027 13:00:00 GMT", 30),
        ("soon", 1),
        ("-1", 1),
    ],
)
def test_a_retry_after_is_respected_within_the_limit(after: str, seconds: float) -> None:
    assert waits(CallRetry(), after=after)[0] == seconds


def test_without_retries_the_first_response_counts() -> None:
    assert waits(CallRetry(max_retries=0), after="1")[0] is None


def test_an_impossible_policy_is_refused() -> None:
    with pytest.raises(DefinitionError, match="max_retries must be 0 or more"):
        CallRetry(max_retries=-1)
    with pytest.raises(DefinitionError, match="base_delay must be between 0 and max_delay"):
        CallRetry(base_delay=timedelta(minutes=1))
