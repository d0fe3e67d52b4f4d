"""Every public method, with anything in the place of any argument: refused clearly or done, and work goes on.

`TRAX_HOSTILE_EXAMPLES=500 .venv/bin/pytest tests/host/test_hostile_calls.py` tries every known value in every
place, and draws more.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hostile import ANYTHING, DRAWN, anything, sample
from tests.support.hostile_calls import (
    DECLARING,
    OWN_CODE,
    Place,
    build_part,
    call,
    go_on,
    parts,
    places,
    problem_of,
    railway,
)
from tests.support.surface import Parameter, parameters_of

from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

ALL = list(places(railway("memory://")))
OPERATING = [place for place in ALL if place.method not in DECLARING]
NONSENSE = [
    Place(name, Parameter(word, is_required=False, is_positional=False))
    for name in ("queue", "queue_many", "manifests.list", "manifests.schedule", "settings.update")
    for word in ("nonsense", "self", "x" * 10_000, "a\x00b")
]


class Office:
    """One server, whose clock only moves when told, and the loop that it runs in."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.harness = Harness(railway(url))
        self.runner.run(self.harness.__aenter__())
        self.runner.run(self._open())

    async def _open(self) -> None:
        for cups in (1, 10):
            await self.harness.app.queue("serve_coffee", {"customer": "Ada", "cups": cups})
        await self.harness.run_until_idle()

    def close(self) -> None:
        self.runner.run(self.harness.__aexit__())
        self.runner.close()

    def call(self, place: Place, value: Any) -> str | None:
        try:
            self.runner.run(call(self.harness.app, place, value))
        except Exception as error:  # noqa: BLE001 - that is the question
            is_own = (place.method, place.parameter.name) in OWN_CODE and callable(value)
            problem = None if is_own else problem_of(error)
            return None if problem is None else f"{place} with {describe(value)}: {problem}"
        return None

    def go_on(self) -> None:
        self.runner.run(go_on(self.harness))


def describe(value: Any) -> str:
    try:
        return f"{type(value).__name__} {value!r}"[:100]
    except (RecursionError, RuntimeError, ValueError):
        return type(value).__name__


@pytest.fixture
def office(url: str) -> Generator[Office]:
    opened = Office(url)
    yield opened
    opened.close()


def problems_of(office: Office, chosen: Iterable[Place]) -> Iterator[str]:
    for _, of_method in groupby(chosen, key=lambda place: place.method):
        for place in of_method:
            answers = (office.call(place, value) for value in sample(str(place), ANYTHING))
            yield from (problem for problem in answers if problem)
        office.go_on()


def test_each_argument_of_each_method_is_refused_clearly_or_works(office: Office) -> None:
    problems = list(problems_of(office, [*OPERATING, *NONSENSE]))

    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_each_argument_of_a_declaration_is_refused_clearly_or_works(office: Office) -> None:
    problems = list(problems_of(office, [place for place in ALL if place.method in DECLARING]))

    assert not problems, "\n".join(problems)


def test_each_argument_of_what_declarations_are_made_of_is_refused_clearly_or_works() -> None:
    problems: list[str] = []
    for name, make in parts().items():
        for parameter in parameters_of(make):
            for value in sample(f"{name} {parameter.name}", ANYTHING):
                try:
                    build_part(make, parameter.name, value)
                except Exception as error:  # noqa: BLE001 - that is the question
                    if problem := problem_of(error):
                        problems.append(f"{name}({parameter.name}) with {describe(value)}: {problem}")

    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("url", ["memory", "postgresql"], indirect=True)
def test_a_random_call_works_or_is_refused_clearly(office: Office) -> None:
    @DRAWN
    @given(calls=st.lists(st.tuples(st.sampled_from(OPERATING), anything), min_size=10, max_size=20))
    def story(calls: list[tuple[Place, Any]]) -> None:
        problems = [problem for place, value in calls if (problem := office.call(place, value))]
        assert not problems, "\n".join(problems)
        office.go_on()

    story()
