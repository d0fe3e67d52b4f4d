from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, select
from sqlalchemy.dialects import postgresql, sqlite

from trax.store.schema import tables
from trax.store.types import Utc, utc_text

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect

    from trax.store import Store

ZONES = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
MOMENTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=ZONES)  # noqa: DTZ001
DIALECTS: list[Any] = [postgresql.dialect(), sqlite.dialect()]


@pytest.mark.parametrize("dialect", DIALECTS, ids=["postgresql-type", "sqlite-type"])
@given(moment=MOMENTS)
def test_a_moment_comes_back_as_the_same_moment_in_utc(dialect: Dialect, moment: datetime) -> None:
    kind = Utc()

    back = kind.process_result_value(kind.process_bind_param(moment, dialect), dialect)

    assert back == moment
    assert back is not None
    assert back.utcoffset() == timedelta(0)


@given(one=MOMENTS, other=MOMENTS)
def test_order_of_text_is_order_of_time(one: datetime, other: datetime) -> None:
    assert (utc_text(one) < utc_text(other)) == (one < other)
    assert len(utc_text(one)) == 27


@pytest.mark.parametrize("dialect", DIALECTS, ids=["postgresql-type", "sqlite-type"])
def test_a_moment_without_a_zone_is_refused(dialect: Dialect) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        Utc().process_bind_param(datetime(2027, 1, 1), dialect)  # noqa: DTZ001


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2027, 3, 28, 1, 30, 0, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=timezone(timedelta(hours=-5))),
        datetime(9000, 1, 1, tzinfo=UTC),
    ],
)
def test_the_database_keeps_a_moment_to_the_microsecond(store: Store, moment: datetime) -> None:
    def kept(connection: Connection) -> list[Any]:
        setting = tables(connection).setting
        connection.execute(insert(setting).values(name="x", value="1", updated_at=moment))
        equal = select(setting.c.updated_at).where(setting.c.updated_at == moment)
        return list(connection.execute(equal).scalars())

    assert store.run(kept) == [moment]
