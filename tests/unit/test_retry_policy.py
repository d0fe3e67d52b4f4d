from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trax import Retry, TraxError
from trax.engine.retry import policy_of
from trax.records.manifest import LONGEST_DURATION, RetryPolicy

NOTHING = timedelta(0)
HOUR = timedelta(hours=1)
DELAYS = st.timedeltas(min_value=NOTHING)
POLICIES = st.builds(
    RetryPolicy,
    delay=DELAYS,
    multiplier=st.floats(1, 1e300),
    max_delay=DELAYS,
    jitter=st.floats(0, 1),
    max_retries=st.integers(0, 100),
    give_up_on=st.tuples(st.text(), st.text()),
)
FAILURES = st.integers(1, 10_000)
CHANCES = st.floats(0, 1)


@given(POLICIES, FAILURES, CHANCES)
def test_jitter_adds_at_most_its_share_to_a_wait(policy: RetryPolicy, failures: int, chance: float) -> None:
    plain = policy.wait_after(failures)

    jittered = policy.wait_after(failures, random=chance)

    rounding = timedelta(milliseconds=1)  # a century has more microseconds than a float tells apart
    assert NOTHING <= plain <= policy.max_delay
    assert (
        min(plain, LONGEST_DURATION)
        <= jittered
        <= min(plain * (1 + policy.jitter), LONGEST_DURATION) + rounding
    )
    assert jittered <= policy.max_delay


@given(POLICIES, FAILURES, CHANCES)
def test_jitter_makes_no_wait_shorter_than_the_first(
    policy: RetryPolicy, failures: int, chance: float
) -> None:
    assert policy.wait_after(failures, random=chance) >= min(policy.delay, policy.max_delay, LONGEST_DURATION)


def test_waits_that_have_reached_the_longest_are_still_spread() -> None:
    policy = RetryPolicy(delay=HOUR / 8, multiplier=2.0, max_delay=HOUR, jitter=0.25)

    waits = [policy.wait_after(9, random=chance) for chance in (0.0, 0.5, 1.0)]

    assert waits == [0.8 * HOUR, 0.9 * HOUR, HOUR]


@given(POLICIES, FAILURES)
def test_no_wait_is_shorter_than_the_one_before(policy: RetryPolicy, failures: int) -> None:
    assert policy.wait_after(failures) <= policy.wait_after(failures + 1)


@given(POLICIES, st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_stored_policy_comes_back_as_it_was(policy: RetryPolicy, first: int, most: int) -> None:
    policy = replace(policy, delay=timedelta(seconds=first), max_delay=timedelta(seconds=most))

    assert RetryPolicy.from_json(policy.to_json()) == policy


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"delay": "soon"}', "null"])
def test_an_unreadable_policy_is_ignored(text: str) -> None:
    assert RetryPolicy.from_json(text) is None


def test_exceptions_are_stored_by_their_qualified_names() -> None:
    policy = policy_of(Retry(give_up_on=(ValueError, TraxError)))

    assert policy.give_up_on == ("builtins.ValueError", "trax.errors.TraxError")
