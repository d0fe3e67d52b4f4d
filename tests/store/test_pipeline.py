from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import func, literal, select
from tests.support.databases import IN_MEMORY_TOO
from tests.support.steps import adding

from trax.errors import StoreError
from trax.store.pipeline import commit_together, run_together
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from trax.store import Store
    from trax.store.pipeline import BoundStatement

pytestmark = IN_MEMORY_TOO


def counting(connection: Connection) -> BoundStatement:
    return select(func.count()).select_from(tables(connection).setting), {}


def count(connection: Connection) -> Any:
    return run_together(connection, counting(connection))[0][0][0]


def test_statements_run_in_order_and_each_returns_its_rows(store: Store, now: datetime) -> None:
    def steps(connection: Connection) -> Any:
        return run_together(
            connection, counting(connection), adding(connection, "a", now), counting(connection)
        )

    assert store.run(steps) == [[(0,)], [("a",)], [(1,)]]
    assert store.read(count) == 1


def test_the_last_trip_may_carry_the_commit(store: Store, now: datetime) -> None:
    def steps(connection: Connection) -> Any:
        run_together(connection, counting(connection))
        return commit_together(connection, adding(connection, "a", now))

    assert store.run(steps) == [[("a",)]]
    assert store.read(count) == 1


def test_an_error_in_a_pipeline_undoes_the_transaction_and_spares_the_connection(
    store: Store, now: datetime
) -> None:
    def steps(connection: Connection) -> Any:
        twice = adding(connection, "a", now)
        return commit_together(connection, twice, twice, (select(literal(1)), {}))

    with pytest.raises(StoreError):
        store.run(steps)

    assert store.read(count) == 0


def test_values_keep_their_types_on_their_way_to_the_database_and_back(store: Store, now: datetime) -> None:
    def steps(connection: Connection) -> Any:
        setting = tables(connection).setting
        wanted = select(setting.c.name, setting.c.updated_at, literal(1.5))
        return run_together(connection, adding(connection, "a", now), (wanted, {}))[1]

    assert store.run(steps) == [("a", now, 1.5)]
