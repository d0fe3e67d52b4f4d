from __future__ import annotations

import logging
from typing import Annotated, Any, Protocol

import pytest

from trax.errors import RouteError
from trax.train import (
    Cancellation,
    Route,
    Services,
    check_route,
    extract,
    junction,
    short_circuit,
    train,
    unchecked,
    wired,
)

Source = Annotated[str, "source"]


class SyncTable:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows


class Rows: ...


class FewRows(Rows): ...


class Report: ...


class Client: ...


@junction
async def extract_rows(job: SyncTable) -> Rows:
    return job.rows


@junction
async def load(rows: Rows, client: Client) -> Report:
    raise NotImplementedError


@junction
async def load_rows(rows: Rows) -> Report:
    raise NotImplementedError


def problems(route: Any, *, given: Any = SyncTable, gives: Any = Report, **how: Any) -> list[str]:
    whole: Route[Any, Any] = Route(route.stops)
    found = check_route("sync", whole, input_type=given, output_type=gives, **how)
    return [str(problem).split(" (")[0] for problem in found]


def test_a_route_that_fits_has_no_problems() -> None:
    assert problems(extract_rows >> load_rows) == []


def test_a_missing_input_is_reported_with_everything_that_helps() -> None:
    @junction
    async def publish(report: Report, rows: Row) -> None:
        raise NotImplementedError

    class Row: ...

    with pytest.raises(RouteError) as caught:
        train("sync_table", extract_rows >> load_rows >> publish)

    assert caught.value.code == "CHAIN001"
    assert str(caught.value) == (
        "CHAIN001: train 'sync_table': junction 'publish' needs Row (parameter 'rows'), "
        "but no earlier junction produces it; available: Report, Rows, SyncTable; did you mean 'Rows'? "
        "If Row is a service, declare it first: app.provide(Row, …)"
    )


def test_a_missing_output_at_the_end_is_reported() -> None:
    with pytest.raises(RouteError) as caught:
        train("sync_table", extract_rows, output=Report)

    assert caught.value.code == "CHAIN002"
    assert str(caught.value) == (
        "CHAIN002: train 'sync_table' must return Report, but no junction of its route produces it; "
        "available: Rows, SyncTable"
    )


def test_every_problem_is_reported() -> None:
    assert problems(load, gives=SyncTable | int, given=int) == [
        "CHAIN001: train 'sync': junction 'load' needs Rows",
        "CHAIN001: train 'sync': junction 'load' needs Client",
    ]
    with pytest.raises(RouteError, match=r"needs Rows[\s\S]*CHAIN001: [\s\S]*needs Client"):
        train("sync", load, input=int)


def test_a_service_or_an_extra_value_satisfies() -> None:
    services = Services()
    services.provide(Client, Client)

    assert problems(extract_rows >> load, services=services) == []
    assert problems(extract_rows >> load, extra=(Client,)) == []


def test_a_subclass_satisfies_its_base_but_not_the_other_way_round() -> None:
    @junction
    async def few(job: SyncTable) -> FewRows:
        raise NotImplementedError

    @junction
    async def needs_few(rows: FewRows) -> Report:
        raise NotImplementedError

    assert problems(few >> load_rows) == []
    assert problems(extract_rows >> needs_few) == [
        "CHAIN001: train 'sync': junction 'needs_few' needs FewRows"
    ]


def test_tuples_give_and_ask_for_their_elements() -> None:
    @junction
    async def both(job: SyncTable) -> tuple[Rows, Source]:
        return job.rows, "here"

    @junction
    async def turned(pair: tuple[Source, Rows, Client]) -> Report:
        raise NotImplementedError

    assert problems(both >> turned) == ["CHAIN001: train 'sync': junction 'turned' needs Client"]


def test_a_wired_protocol_is_produced_by_a_class_that_satisfies_it() -> None:
    @wired
    class HasRows(Protocol):
        def count_rows(self) -> int: ...

    class Counted:
        def count_rows(self) -> int:
            return 1

    @junction
    async def make(job: SyncTable) -> Counted:
        raise NotImplementedError

    @junction
    async def use(rows: HasRows) -> Report:
        raise NotImplementedError

    assert problems(make >> use) == []


def test_a_default_a_logger_and_the_token_need_no_producer() -> None:
    @junction
    async def use(
        job: SyncTable, logger: logging.Logger, token: Cancellation, client: Client | None = None
    ) -> Report:
        raise NotImplementedError

    assert problems(use) == []
    assert isinstance(logging.getLogger(), logging.Logger)


def test_a_short_circuit_consumes_and_produces_like_a_junction() -> None:
    assert problems(short_circuit(extract_rows) >> load_rows) == []
    assert problems(short_circuit(load_rows) >> extract_rows, gives=Rows) == [
        "CHAIN001: train 'sync': junction 'load_rows' needs Rows"
    ]


def test_extract_produces_its_target_and_its_source_is_not_checked() -> None:
    assert problems(extract(Client, Rows) >> load_rows) == []


def test_an_unchecked_junction_still_produces_its_output() -> None:
    assert problems(unchecked(load_rows), given=int) == []
    assert problems(extract_rows >> unchecked(load)) == []


def test_the_constructor_of_a_class_is_checked_too() -> None:
    @junction
    class Load:
        def __init__(self, client: Client) -> None:
            self.client = client

        async def __call__(self, rows: Rows) -> Report:
            raise NotImplementedError

    assert problems(extract_rows >> Load) == ["CHAIN001: train 'sync': junction 'Load' needs Client"]


def test_another_type_of_the_same_name_is_pointed_out() -> None:
    def another() -> type:
        class Rows: ...

        return Rows

    with pytest.raises(RouteError, match="available: Rows, where Rows is another type of the same name"):
        train("sync", load_rows, input=another())


def test_a_wider_union_is_satisfied_by_one_of_its_members() -> None:
    @junction
    async def either(rows: Client | Rows) -> Report:
        raise NotImplementedError

    assert problems(extract_rows >> either) == []
