from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trax.inspect.doctor import (
    autovacuum_finding,
    clock_finding,
    listen_finding,
    sqlite_findings,
    transaction_finding,
)
from trax.store.inspect import OldTransaction, SqliteState

WELL = SqliteState("wal", 2, pages=100, free_pages=0, page_bytes=4096)


@pytest.mark.parametrize(("seconds", "is_wrong"), [(0, False), (-4, False), (60, True), (-60, True)])
def test_clocks_that_differ_by_much_are_wrong(seconds: int, is_wrong: bool) -> None:
    assert clock_finding(timedelta(seconds=seconds)).is_wrong is is_wrong


def test_a_transaction_that_is_open_for_long_is_named_with_its_cure() -> None:
    began = datetime(2027, 3, 1, 12, tzinfo=UTC)

    finding = transaction_finding(OldTransaction(4711, 3600.0, began, "psql"))

    assert "process 4711 (psql) has a transaction open for 1 h" in finding.text
    assert "its last query began at 12:00:00" in finding.text
    assert finding.fix
    assert "pg_terminate_backend(4711)" in finding.fix
    assert not transaction_finding(OldTransaction(4711, 2.0, began, "psql")).is_wrong
    assert not transaction_finding(None).is_wrong


def test_autovacuum_must_be_on() -> None:
    assert (autovacuum_finding(is_on=True).is_wrong, autovacuum_finding(is_on=False).is_wrong) == (
        False,
        True,
    )


def test_a_pooler_is_a_fault_only_where_notifications_do_not_arrive() -> None:
    through, deaf = (
        listen_finding(is_stable=False, can_listen=True),
        listen_finding(is_stable=True, can_listen=False),
    )

    assert ("a pooler" in through.text, through.is_wrong) == (True, False)
    assert deaf.fix
    assert "listen_url" in deaf.fix


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, []),
        ({"journal_mode": "delete"}, ["journal"]),
        ({"synchronous": 1}, ["synchronous"]),
        ({"free_pages": 90}, []),
        ({"pages": 100_000, "free_pages": 90_000}, ["size"]),
    ],
)
def test_a_file_is_judged_by_its_journal_its_safety_and_its_holes(
    changes: dict[str, int | str], wrong: list[str]
) -> None:
    found = WELL._replace(**changes)  # pyright: ignore[reportArgumentType]

    assert [finding.code for finding in sqlite_findings(found) if finding.is_wrong] == wrong
