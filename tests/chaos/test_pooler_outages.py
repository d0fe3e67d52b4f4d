"""A fleet behind PgBouncer in transaction mode, whose connections run out, and which dies."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.support.backends import cut_off
from tests.support.chaos import chaos_fleet
from tests.support.chaos_load import LEASE_SECONDS, last, start_fleet, under_load
from tests.support.pgbouncer import POOL_SIZE, PgBouncer, pgbouncer_to

if TYPE_CHECKING:
    from pathlib import Path


def die(pooler: PgBouncer, _url: str) -> None:
    pooler.kill()
    last(LEASE_SECONDS)
    pooler.start()


def lose_its_connections(_pooler: PgBouncer, url: str) -> None:
    cut_off(url, only="trax%")


def give_all_to_others(pooler: PgBouncer, _url: str) -> None:
    """Each of them is in a transaction that somebody else has begun.

    They do not say who they are, so the pooler leaves the name of Trax on their connections.
    """
    with ExitStack() as others:
        for _ in range(POOL_SIZE):
            other = others.enter_context(psycopg.connect(pooler.url))
            other.execute("SELECT 1")
        last(LEASE_SECONDS)


FAULTS = [die, lose_its_connections, give_all_to_others]


@pytest.mark.usefixtures("pooler_program")
def test_a_fleet_works_behind_a_pooler_in_transaction_mode(postgres_url: str, tmp_path: Path) -> None:
    with (
        pgbouncer_to(postgres_url) as pooler,
        chaos_fleet(tmp_path, f"{postgres_url}?application_name=onlooker") as fleet,
    ):
        start_fleet(fleet, "run", "scheduler", "worker", url=pooler.url)
        with under_load(fleet, "pooled") as load:
            load.settles()
            for fault in FAULTS:
                load.burst()
                fault(pooler, postgres_url)
                load.recovers(fleet.store.read(fleet.store.now))
        load.judge()
