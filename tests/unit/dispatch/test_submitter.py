from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from trax.engine.submitter import Refused, Submission, check_submitter, pause_after, validate_results
from trax.errors import DefinitionError

BATCH = [Submission(metadata_id=number, external_id=str(number), train="work") for number in (1, 2)]
PACE: Any = {"max_attempts": 5, "interval": timedelta(seconds=2), "max_pause": timedelta(seconds=30)}


class Named:
    def __init__(self, name: Any = "remote", batch_size: Any = 1) -> None:
        self.name = name
        self.batch_size = batch_size

    def submit(self, batch: Any) -> None: ...


def test_a_result_of_none_means_that_all_were_accepted() -> None:
    assert validate_results("remote", None, BATCH) == [None, None]


def test_each_run_has_its_own_answer() -> None:
    lost = OSError("no route")

    assert validate_results("remote", (None, lost), BATCH) == [None, lost]
    assert validate_results("remote", [Refused("full"), None], BATCH) == [Refused("full"), None]


@pytest.mark.parametrize("said", [[None], [None, None, None], 7, "ok", {"taken": 2}])
def test_results_that_cannot_be_matched_refuse_every_run(said: Any) -> None:
    answers = validate_results("remote", said, BATCH)

    assert [type(answer) for answer in answers] == [Refused, Refused]
    assert "submitter 'remote'" in str(answers[0])


def test_an_answer_that_means_nothing_is_a_refusal_of_its_run_only() -> None:
    taken, refused = validate_results("remote", [None, "job-7"], BATCH)

    assert taken is None
    assert isinstance(refused, Refused)
    assert "'job-7'" in refused.reason


def test_the_pauses_double_up_to_the_longest_and_then_it_is_given_up() -> None:
    pauses = [pause_after(refusals, **PACE) for refusals in range(1, 6)]

    assert pauses == [timedelta(seconds=seconds) for seconds in (4, 8, 16, 30)] + [None]


def test_with_no_attempts_allowed_the_first_refusal_is_the_last() -> None:
    assert pause_after(1, **PACE | {"max_attempts": 0}) is None


def test_a_great_many_refusals_wait_the_longest() -> None:
    assert pause_after(5_000, **PACE | {"max_attempts": 10_000}) == timedelta(seconds=30)


@pytest.mark.parametrize(
    ("submitter", "problem"),
    [
        (object(), "it needs a `name` and a function `submit"),
        (Named(name=""), "must be text"),
        (Named(name=7), "must be text"),
        (Named(batch_size=0), "batch_size must be 1 or more"),
        (Named(batch_size="all"), "batch_size must be 1 or more"),
    ],
)
def test_an_object_that_is_no_submitter_is_refused(submitter: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        check_submitter(submitter)
