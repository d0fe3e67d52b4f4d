"""The newest PostgreSQL dies, and its standby takes over: read-only at first, then promoted."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.support.chaos import chaos_fleet
from tests.support.chaos_load import start_fleet, under_load
from tests.support.chaos_proxy import proxy_to
from tests.support.standby import standby_of
from tests.support.waiting import until

from trax.testing.postgres import postgres_server

if TYPE_CHECKING:
    from pathlib import Path


def test_acknowledged_work_survives_a_failover_to_a_standby(newest_binaries: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        primary = stack.enter_context(postgres_server(binaries=newest_binaries, durable=True))
        standby = stack.enter_context(standby_of(primary))
        proxy = stack.enter_context(proxy_to(primary.url))
        fleet = stack.enter_context(chaos_fleet(tmp_path, f"{proxy.url}?application_name=onlooker"))
        processes = start_fleet(fleet, "run", "run", url=proxy.url)  # so that visits are quick ones
        with under_load(fleet, "fail-over") as load:
            load.settles()
            load.burst()
            primary.stop("immediate")
            proxy.lead_to(standby.server.url)
            until(lambda: all("read-only" in process.log for process in processes))
            standby.promote()
            fleet.forget()
            load.recovers(fleet.store.read(fleet.store.now))
        load.judge()
