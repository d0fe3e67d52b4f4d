from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from trax.train.context import Run, enter_run
from trax.worker.capture import JsonLines, TextLines

MOMENT = 1_798_804_800.25


def record(message: str = "hello", *args: Any, raised: BaseException | None = None, **extra: Any) -> Any:
    error = (type(raised), raised, raised.__traceback__) if raised else None
    made = logging.getLogger("jobs").makeRecord(
        "jobs", logging.WARNING, "f", 1, message, args, error, extra=extra
    )
    made.created = MOMENT
    return made


def caught() -> BaseException:
    with pytest.raises(ValueError, match="luck") as raised:
        raise ValueError("no\nluck")
    return raised.value


def test_text_is_one_line_with_the_time_in_utc() -> None:
    assert TextLines().format(record("hello %s", "Ada")) == "2027-01-01 12:00:00.250Z WARNING jobs: hello Ada"


def test_text_names_what_was_given_beside_the_message() -> None:
    line = TextLines().format(record(table="users", reason="the disk is full", empty=""))

    assert line.endswith(' hello table=users reason="the disk is full" empty=""')


@pytest.mark.parametrize("said", ["two\nlines", "bell\a", "\x1b[2Jgone", "back\rover"])
def test_text_of_a_job_cannot_forge_a_log_line(said: str) -> None:
    line = TextLines().format(record(said))

    assert line.isprintable()


def test_the_traceback_stands_below_and_moved_in() -> None:
    first, *rest = TextLines().format(record(raised=caught())).splitlines()

    assert first.endswith("WARNING jobs: hello")
    assert rest[0] == "  Traceback (most recent call last):"
    assert rest[-2:] == ["  ValueError: no", "  luck"]


def test_json_is_one_document_on_one_line() -> None:
    line = JsonLines().format(record("two\nlines", raised=caught(), table="users", at={1}))

    found = json.loads(line)
    assert "\n" not in line
    assert (found["time"], found["level"]) == ("2027-01-01T12:00:00.250Z", "warning")
    assert (found["logger"], found["message"]) == ("jobs", "two\nlines")
    assert found["extras"] == {"table": "users", "at": "{1}"}
    assert found["exception"].startswith("Traceback")
    assert found["exception"].endswith("ValueError: no\nluck")


def test_json_leaves_out_what_is_not_there() -> None:
    assert json.loads(JsonLines().format(record())).keys() == {"time", "level", "logger", "message"}


def test_a_line_names_the_run_that_logged_it() -> None:
    with enter_run(Run(metadata_id=7, external_id="x", train="greet")):
        text, document = TextLines().format(record(number=1)), JsonLines().format(record(train="mine"))

    assert text.endswith("hello metadata_id=7 train=greet number=1")
    assert json.loads(document)["extras"] == {"metadata_id": 7, "train": "mine"}


@pytest.mark.parametrize("value", [float("nan"), {(1, 2): 3}, {"deep": float("inf")}])
def test_json_lines_are_valid_with_any_value(value: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = JsonLines().format(record(value=value))

    assert json.loads(line, parse_constant=refuse)["extras"] == {"value": str(value)}


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()])
def test_arguments_that_do_not_fit_do_not_lose_the_line(formatter: logging.Formatter) -> None:
    assert "%d rows (invalid log arguments)" in formatter.format(record("%d rows", "many"))


def test_a_requested_stack_is_shown() -> None:
    made = record()
    made.stack_info = "Stack (most recent call last):\n  here"

    assert TextLines().format(made).splitlines()[1:] == ["  Stack (most recent call last):", "    here"]


def test_every_python_has_only_known_attributes() -> None:
    made = logging.getLogger("jobs").makeRecord("jobs", logging.INFO, "f", 1, "hello", (), None)
    made.getMessage()

    assert "extras" not in json.loads(JsonLines().format(made)), sys.version
