from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from trax.errors import DefinitionError, RunCancelled, RunInterrupted, RunTimedOut, TraxError
from trax.train import (
    Cancel,
    Cancellation,
    Cancelled,
    Failed,
    Interrupted,
    RetryAfter,
    Snooze,
    junction,
    short_circuit,
    train,
)

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("kind", [RetryAfter, Snooze])
@pytest.mark.parametrize("delay", [-MINUTE, timedelta.max, 60, "soon", None])
def test_a_delay_that_cannot_be_is_refused_where_it_is_made(kind: Any, delay: Any) -> None:
    with pytest.raises(
        DefinitionError, match=f"the delay of {kind.__name__} must be a timedelta from 0 to 68 years"
    ):
        kind(delay)


@pytest.mark.parametrize("kind", [RetryAfter, Snooze])
def test_a_request_can_be_sent_to_another_process(kind: Any) -> None:
    sent = pickle.loads(pickle.dumps(kind(MINUTE, "why")))  # noqa: S301 - our own bytes

    assert (type(sent), sent.delay, str(sent)) == (kind, MINUTE, "why")


def test_requests_can_be_caught_by_their_kind() -> None:
    assert issubclass(Cancel, RunCancelled)
    assert issubclass(Snooze, RunInterrupted)
    assert issubclass(RetryAfter, TraxError)
    assert not issubclass(RetryAfter, RunCancelled | RunInterrupted)


async def test_each_request_has_its_own_outcome() -> None:
    @junction
    def ask(wish: Exception) -> None:
        raise wish

    asking = train("ask", ask)

    again = await asking.attempt(RetryAfter(MINUTE))
    assert isinstance(again, Failed)
    assert isinstance(again.error, RetryAfter)
    assert await asking.attempt(Snooze(MINUTE, "later")) == Interrupted("later", MINUTE)
    assert await asking.attempt(Cancel("no")) == Cancelled("no")


@pytest.mark.parametrize("wish", [RetryAfter(MINUTE), Snooze(MINUTE), Cancel("no")], ids=repr)
async def test_a_caller_meets_the_very_same_exception(wish: Exception) -> None:
    @junction
    async def ask(_: int) -> None:
        raise wish

    with pytest.raises(type(wish)) as raised:
        await train("ask", ask).run(1)

    assert raised.value is wish


@pytest.mark.parametrize("wish", [RetryAfter(MINUTE), Snooze(MINUTE), Cancel("no")], ids=repr)
async def test_a_short_circuit_does_not_swallow_a_request(wish: Exception) -> None:
    @junction
    def ask(_: int) -> int:
        raise wish

    @junction
    def go_on(number: int) -> int:
        return number

    with pytest.raises(type(wish)):
        await train("ask", short_circuit(ask) >> go_on).run(1)


async def test_a_timed_out_run_has_a_timed_out_outcome_however_it_stops() -> None:
    token = Cancellation()

    @junction
    async def stop_politely(_: int) -> None:
        token.cancel("timed out", timed_out=True)
        raise Cancel("it was asked to stop")

    @junction
    def stop_when_told(_: int) -> None:
        token.raise_if_requested()

    assert await train("polite", stop_politely).attempt(1, cancellation=token) == Cancelled(
        "it was asked to stop", timed_out=True
    )
    assert await train("told", stop_when_told).attempt(1, cancellation=token) == Cancelled(
        "timed out", timed_out=True
    )
    with pytest.raises(RunTimedOut, match="timed out"):
        await train("told", stop_when_told).run(1, cancellation=token)
