"""Withdrawing and cancelling beside the gate and the workers. Real connections, real locks."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from tests.support import listing
from tests.support.waiting import until

from trax import Trax, every
from trax.engine.cancel import cancel_runs, withdraw
from trax.records import State
from trax.store.queue import requeue
from trax.store.runs import claim, metadata
from trax.testing import Harness
from trax.worker.dispatcher import dispatch_now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from trax.store import Connection, Store

TIMEOUT_SECONDS = 30
WAITING = text("SELECT count(*) FROM pg_locks WHERE NOT granted")


class Railway(Harness):
    """What two servers would do, each step a transaction that can be held open."""

    @property
    def store(self) -> Store:
        return self.app.context.store.open_blocking()

    def gate(self, connection: Connection) -> Any:
        return dispatch_now(connection, self.store, self.app.context)

    def withdraw(self, *ids: int) -> Callable[[Connection], list[int]]:
        return lambda connection: withdraw(connection, ids, self.app.context.settings, now=self.now)

    def cancel(self, *ids: int) -> Callable[[Connection], list[int]]:
        return lambda connection: cancel_runs(connection, ids, self.app.context.settings, now=self.now)

    def claim(self, connection: Connection) -> list[int]:
        taker = claim.ClaimRequest(1, "box", 10, frozenset({"greet"}))
        return [run.metadata_id for run in claim.claim(connection, taker, now=self.now)]

    def one_after_the_other(
        self, first: Callable[[Connection], Any], second: Callable[[Connection], Any]
    ) -> tuple[Any, Any]:
        """Begin the second while the first has not committed, and let both end."""
        done, go = Event(), Event()

        def held(connection: Connection) -> Any:
            result = first(connection)
            done.set()
            assert go.wait(TIMEOUT_SECONDS)
            return result

        with ThreadPoolExecutor(2) as threads:
            one = threads.submit(self.store.run, held)
            assert done.wait(TIMEOUT_SECONDS)
            two = threads.submit(self.store.run, second)
            until(lambda: two.done() or self.is_somebody_waiting())
            go.set()
            return one.result(TIMEOUT_SECONDS), two.result(TIMEOUT_SECONDS)

    def is_somebody_waiting(self) -> bool:
        return self.store.read(lambda connection: connection.execute(WAITING).scalar_one()) > 0


@pytest.fixture
async def railway(postgres_url: str) -> AsyncGenerator[Railway]:
    app = Trax(postgres_url)

    @app.train
    async def greet(name: str) -> str:
        return name

    app.schedule(greet, "hello", "Ada", every(hours=1))
    async with Railway(app) as opened:
        await opened.cycle("manifest_manager")
        yield opened


async def test_an_entry_that_was_withdrawn_first_does_not_pass_the_gate(railway: Railway) -> None:
    (entry,) = railway.store.read(listing.entries)

    withdrawn, dispatched = railway.one_after_the_other(railway.withdraw(entry.id), railway.gate)

    assert (withdrawn, dispatched.entry_ids) == ([entry.id], [])
    assert await railway.app.executions.list() == []


async def test_an_entry_that_passed_the_gate_first_is_not_withdrawn(railway: Railway) -> None:
    (entry,) = railway.store.read(listing.entries)

    dispatched, withdrawn = railway.one_after_the_other(railway.gate, railway.withdraw(entry.id))

    assert (dispatched.entry_ids, withdrawn) == ([entry.id], [])
    assert len(await railway.app.executions.list()) == 1


async def test_the_gate_waits_for_a_withdrawal_that_has_locked_the_manifest(
    railway: Railway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lock the entry, wait for the manifest to insert the run, and so hold up the withdrawal."""
    (entry,) = railway.store.read(listing.entries)
    withdraw_entries = requeue.withdraw

    with ThreadPoolExecutor(1) as threads:
        visits: list[Future[Any]] = []

        def withdraw_beside_the_gate(*arguments: Any) -> Any:
            visits.append(visit := threads.submit(railway.store.run, railway.gate))
            until(lambda: visit.done() or railway.is_somebody_waiting())
            return withdraw_entries(*arguments)

        monkeypatch.setattr(requeue, "withdraw", withdraw_beside_the_gate)
        withdrawn = railway.store.run(railway.withdraw(entry.id))
        (visit,) = visits

        assert (withdrawn, visit.result(TIMEOUT_SECONDS).entry_ids) == ([entry.id], [])


async def test_a_run_claimed_before_its_cancellation_is_requested_to_cancel(railway: Railway) -> None:
    (run,) = railway.store.run(railway.gate).metadata_ids

    claimed, asked = railway.one_after_the_other(railway.claim, railway.cancel(run))

    found = railway.store.read(metadata.get, run)
    assert (claimed, asked) == ([run], [run])
    assert found is not None
    assert (found.state, found.cancel_requested) == (State.IN_PROGRESS, True)


async def test_a_run_cancelled_first_is_not_claimed(railway: Railway) -> None:
    (run,) = railway.store.run(railway.gate).metadata_ids

    asked, claimed = railway.one_after_the_other(railway.cancel(run), railway.claim)

    assert (asked, claimed) == ([run], [])
    assert (await railway.app.executions.get(run)).state is State.CANCELLED
