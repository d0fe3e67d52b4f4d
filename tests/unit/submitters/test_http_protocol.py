from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

import pytest

from trax import Cancel, Cancelled, Done, Failed, Interrupted, RetryAfter, RunTimedOut, Snooze
from trax.errors import RemoteFailure
from trax.remote.http.protocol import outcome_line, outcome_of, parse_event, parse_outcome
from trax.train.outcome import describe


def travelled(outcome: Any) -> Any:
    line = outcome_line(outcome, json.dumps)
    assert line.endswith(b"\n")
    return parse_outcome(json.loads(line), json.loads, train="work", external_id="x1")


def failed(error: Exception) -> Failed:
    return Failed(error, describe(error, train="work", external_id="x1", junction="load"))


@pytest.mark.parametrize(
    "outcome",
    [
        Done({"rows": [1, 2.5, None, "ü"]}),
        Done(None),
        Cancelled("by the caller"),
        Cancelled("took too long", timed_out=True),
        Interrupted("the far side stops"),
        Interrupted("not yet", timedelta(minutes=2)),
    ],
)
def test_an_ending_arrives_as_it_was(outcome: Any) -> None:
    assert travelled(outcome) == outcome


def test_a_failure_arrives_with_all_that_the_record_wants_to_know() -> None:
    class Broken(ValueError):
        pass

    told = travelled(failed(Broken("no rows")))

    assert isinstance(told.error, RemoteFailure)
    assert (told.failure.type, told.failure.junction, told.failure.message) == ("Broken", "load", "no rows")
    assert "Broken: no rows" in told.failure.stack_trace
    assert "builtins.ValueError" in told.error.raised


def test_a_requested_retry_arrives_as_one() -> None:
    told = travelled(failed(RetryAfter(timedelta(minutes=2), "busy")))

    assert isinstance(told.error, RetryAfter)
    assert (told.error.delay, told.failure.type) == (timedelta(minutes=2), "RetryAfter")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Cancel("enough"), Cancelled("enough")),
        (RunTimedOut("too long"), Cancelled("too long", timed_out=True)),
        (Snooze(timedelta(hours=1), "not yet"), Interrupted("not yet", timedelta(hours=1))),
    ],
)
def test_an_error_of_a_run_is_converted_to_its_outcome(error: Exception, outcome: Any) -> None:
    assert outcome_of(error, train="work") == outcome


@pytest.mark.parametrize("line", ["{}", '{"progress":[0.5,null]}', '{"of_the_future":1}'])
def test_other_lines_are_no_ending(line: str) -> None:
    assert parse_outcome(json.loads(line), json.loads, train="work", external_id="") is None


def test_a_log_line_arrives_under_its_logger_and_level() -> None:
    value = {"logger": "shop.mail", "level": 30, "message": "50% are late", "trace": None}
    (record,) = parse_event("log", value)

    assert (record.name, record.levelno, record.getMessage()) == (
        "shop.mail",
        logging.WARNING,
        "50% are late",
    )
