"""The audit log: changes by operators, with both states, and undoing them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.flow_seeding import deploy

from trax import Conflict, NotFound, Trax, TraxError, acting, every
from trax.engine.actor import actor_context
from trax.errors import DefinitionError, InvalidSetting
from trax.records.audit import Actor, Via
from trax.testing import Harness
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.records.audit import AuditEntry

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
ADA = Actor("ada", Via.DASHBOARD)


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    app = Trax(url)

    @app.train
    async def divide(number: int) -> float:
        return 1 / number

    @app.train
    async def nest(number: int) -> None:
        await app.queue(divide, number)

    app.group("etl", max_active_jobs=3)
    app.schedule(divide, "ones", 1, every(hours=1), group="etl")
    async with Harness(app, now=NOON) as opened:
        yield opened


async def told(h: Harness) -> list[tuple[str, tuple[str, ...], int]]:
    return [(one.action, one.ids, one.count) for one in reversed(await h.app.audit.list())]


async def test_changes_without_an_actor_leave_no_audit_entry(h: Harness) -> None:
    await h.app.groups.update("etl", priority=5, max_active_jobs=3)
    await h.app.settings.update(max_queued_jobs_per_cycle=50)
    await h.app.manifests.disable("ones")

    assert await h.app.audit.list() == []


async def test_a_changed_limit_is_audited_for_any_actor(h: Harness) -> None:
    await h.app.groups.update("etl", max_active_jobs=5)
    await h.app.groups.update("etl", enabled=False)
    await h.app.settings.update(max_active_jobs=50)
    await h.app.settings.reset("max_active_jobs")

    entries = [*reversed(await h.app.audit.list())]
    assert {(one.actor, one.via) for one in entries} == {("python", "python")}
    assert [(one.action, one.before, one.after) for one in entries] == [
        ("groups.update", {"max_active_jobs": 3}, {"max_active_jobs": 5}),
        ("groups.update", {"enabled": True}, {"enabled": False}),
        ("settings.update", {"max_active_jobs": 10}, {"max_active_jobs": 50}),
        ("settings.reset", {"max_active_jobs": 50}, {"max_active_jobs": 10}),
    ]


async def test_a_changed_limit_in_code_is_audited_and_a_new_group_is_not(h: Harness, url: str) -> None:
    code = Trax(url)
    code.group("etl", max_active_jobs=2, priority=9)
    code.group("new", max_active_jobs=1)

    await deploy(h, code)
    await deploy(h, code)

    (entry,) = await h.app.audit.list()
    assert (entry.actor, entry.via, entry.action, entry.ids) == (
        *("declaration", "system"),
        *("groups.declare", ("etl",)),
    )
    assert (entry.before, entry.after) == ({"max_active_jobs": 3}, {"max_active_jobs": 2})
    assert not entry.can_undo


async def test_the_limits_that_dispatching_servers_declare_are_written_down_when_they_differ(
    h: Harness, url: str
) -> None:
    store = await h.app.context.store.open()
    first = await Worker.start(h.app.context, store, dispatches=True)
    again = await Worker.start(h.app.context, store, dispatches=True)
    await Worker.start(h.app.context, store)
    other = Trax(url, max_active_jobs=4)
    changed = await Worker.start(other.context, store, dispatches=True)
    for worker in (first, again, changed):
        await worker.unregister()
    await Worker.start(other.context, store, dispatches=True)

    kept: dict[str, Any] = {"exempt_trains": [], "dead_letter_retention_period": "30 days"}
    entries = [*reversed(await h.app.audit.list(action="settings.declare"))]
    assert [one.after for one in entries] == [
        {"max_active_jobs": 10, **kept},
        {"max_active_jobs": [4, 10], **kept},
        {"max_active_jobs": 4, **kept},
    ]
    await h.advance(days=800)
    await h.cycle("dead_letter_cleanup")
    assert len(await h.app.audit.list()) == len(entries)


async def test_an_audit_entry_records_actor_action_and_both_states(h: Harness) -> None:
    with acting(ADA, reason="month end"):
        await h.app.groups.update("etl", max_active_jobs=5, priority=7)

    (entry,) = await h.app.audit.list()
    assert (entry.at, entry.actor, entry.via, entry.reason) == (NOON, "ada", "dashboard", "month end")
    assert (entry.action, entry.noun, entry.ids, entry.count) == ("groups.update", "group", ("etl",), 1)
    assert entry.before == {"max_active_jobs": 3, "priority": 0}
    assert entry.after == {"max_active_jobs": 5, "priority": 7}
    assert await h.app.audit.get(entry.id) == entry


async def test_every_verb_of_an_operator_leaves_an_entry(h: Harness) -> None:
    app = h.app
    await app.queue("divide", 0, max_retries=1)
    await h.run_until_idle()
    (letter,) = await app.dead_letters.list()
    failed = await app.executions.list(state="failed")
    with acting(ADA):
        await app.manifests.disable("ones")
        await app.manifests.enable("ones")
        entry = await app.manifests.trigger("ones")
        await app.work_queue.cancel([entry.id, 999])
        await app.manifests.cancel("ones")
        await app.groups.trigger("etl")
        await app.groups.cancel("etl")
        again = await app.executions.rerun(failed[0].id)
        await app.queue_many("divide", [1, 2])
        await app.run(app.trains.get("divide"), 1)
        await app.executions.cancel([failed[0].id])
        await app.dead_letters.requeue([letter.id], "fixed")
        await app.settings.update(max_active_jobs=50)
        await app.settings.reset("max_active_jobs")
        await app.manifests.delete("ones")

    assert await told(h) == [
        ("settings.declare", ("max_active_jobs",), 1),
        ("manifests.disable", ("ones",), 1),
        ("manifests.enable", ("ones",), 1),
        ("manifests.trigger", ("ones",), 1),
        ("work_queue.cancel", (str(entry.id),), 1),
        ("manifests.cancel", ("ones",), 1),
        ("groups.trigger", ("etl",), 1),
        ("groups.cancel", ("etl",), 1),
        ("executions.rerun", (str(failed[0].id),), 1),
        ("trains.queue", ("divide",), 2),
        ("trains.run", ("divide",), 1),
        ("executions.cancel", (), 0),
        ("dead_letters.requeue", (str(letter.id),), 1),
        ("settings.update", ("max_active_jobs",), 1),
        ("settings.reset", ("max_active_jobs",), 1),
        ("manifests.delete", ("ones",), 1),
    ]
    (rerun,) = await app.audit.list(action="executions.rerun")
    assert rerun.after["entry_ids"] == [again.id]


async def test_changes_by_a_running_train_are_not_attributed_to_its_caller(h: Harness) -> None:
    with acting(ADA):
        await h.app.run(h.app.trains.get("nest"), 1)

    assert [action for action, _, _ in await told(h)] == ["trains.run"]


async def test_a_change_that_fails_leaves_no_entry(h: Harness) -> None:
    with acting(ADA):
        with pytest.raises(NotFound):
            await h.app.groups.update("nobody", priority=1)
        with pytest.raises(TraxError):
            await h.app.settings.update(heartbeat_interval=60)

    assert await h.app.audit.list() == []


async def test_entries_are_found_by_who_what_and_when(h: Harness) -> None:
    with acting(ADA):
        await h.app.groups.update("etl", priority=1)
    await h.advance(hours=1)
    with acting(Actor("grace", Via.API)):
        await h.app.manifests.disable("ones")
        await h.app.groups.update("etl", priority=2)

    async def found(**wanted: Any) -> list[int]:
        return [entry.id for entry in await h.app.audit.list(**wanted)]

    assert await found() == [3, 2, 1]
    assert await found(actor="grace") == await found(since=NOON + timedelta(minutes=1)) == [3, 2]
    assert (
        await found(action="groups.update")
        == await found(noun="group")
        == await found(target="etl")
        == [3, 1]
    )
    assert await found(until=NOON + timedelta(minutes=1)) == [1]
    assert await found(before=3, limit=1) == [2]


async def test_a_change_of_a_group_is_undone(h: Harness) -> None:
    with acting(ADA):
        await h.app.groups.update("etl", max_active_jobs=None, enabled=False)
        (entry,) = await h.app.audit.list()

        undoing = await h.app.audit.undo(entry.id)

    group = await h.app.groups.get("etl")
    assert (group.max_active_jobs, group.enabled) == (3, True)
    assert (undoing.undoes, undoing.after) == (entry.id, {"max_active_jobs": 3, "enabled": True})
    assert (await h.app.audit.get(entry.id)).undone_by == undoing.id
    with pytest.raises(Conflict, match=f"already undone by entry {undoing.id}"):
        await h.app.audit.undo(entry.id)
    await h.app.audit.undo(undoing.id)
    assert (await h.app.groups.get("etl")).max_active_jobs is None


async def test_a_change_of_settings_is_undone_to_what_it_was(h: Harness) -> None:
    await h.app.settings.update(max_active_jobs=20)
    with acting(ADA):
        await h.app.settings.update(max_active_jobs=50, job_dispatcher_enabled=False)
    (entry,) = await h.app.audit.list(actor="ada")
    assert entry.before == {"job_dispatcher_enabled": True, "max_active_jobs": 20}
    assert entry.after == {"job_dispatcher_enabled": False, "max_active_jobs": 50}

    undoing = await h.app.audit.undo(entry.id)

    settings, origins = await h.app.settings.get(), await h.app.settings.origins()
    assert (settings.max_active_jobs, settings.job_dispatcher_enabled) == (20, True)
    assert (origins["max_active_jobs"], origins["job_dispatcher_enabled"]) == ("operator", "default")
    assert (undoing.actor, undoing.via) == ("python", "python")


async def test_a_reset_of_settings_is_undone(h: Harness) -> None:
    await h.app.settings.update(max_active_jobs=20)
    with acting(ADA):
        await h.app.settings.reset()
    (entry,) = await h.app.audit.list(actor="ada")

    await h.app.audit.undo(entry.id)

    assert await h.app.settings.get("max_active_jobs") == 20


async def test_a_later_change_is_not_overwritten_by_undo_unless_forced(h: Harness) -> None:
    with acting(ADA):
        await h.app.groups.update("etl", max_active_jobs=5)
        await h.app.settings.update(max_active_jobs=50)
    of_settings, of_group = await h.app.audit.list()
    await h.app.groups.update("etl", max_active_jobs=6)
    await h.app.settings.update(max_active_jobs=60)

    with pytest.raises(Conflict, match="max_active_jobs is now 6"):
        await h.app.audit.undo(of_group.id)
    with pytest.raises(Conflict, match="settings have changed since: max_active_jobs"):
        await h.app.audit.undo(of_settings.id)
    assert (await h.app.groups.get("etl")).max_active_jobs == 6

    await h.app.audit.undo(of_group.id, force=True)
    await h.app.audit.undo(of_settings.id, force=True)
    assert (await h.app.groups.get("etl")).max_active_jobs == 3
    assert await h.app.settings.get("max_active_jobs") == 10


async def test_only_settings_and_groups_can_be_undone(h: Harness) -> None:
    with acting(ADA):
        await h.app.manifests.disable("ones")
    (entry,) = await h.app.audit.list()

    assert not entry.can_undo
    with pytest.raises(TraxError, match=r"entry 1 \(manifests.disable\) cannot be undone"):
        await h.app.audit.undo(entry.id)
    with pytest.raises(NotFound, match="no audit entry 99"):
        await h.app.audit.undo(99)


async def test_old_entries_are_forgotten_by_the_cleanup(h: Harness) -> None:
    with acting(ADA):
        await h.app.groups.update("etl", priority=1)
    await h.advance(days=364)
    with acting(ADA):
        await h.app.groups.update("etl", priority=2)
    await h.advance(days=2)

    await h.cycle("dead_letter_cleanup")

    (left,) = await h.app.audit.list()
    assert left.after == {"priority": 2}
    await h.app.settings.update(audit_retention_period=None)
    await h.advance(days=3650)
    await h.cycle("dead_letter_cleanup")
    assert len(await h.app.audit.list()) == 1


async def test_the_change_of_the_retention_outlives_it(h: Harness) -> None:
    with acting(ADA):
        await h.app.groups.update("etl", priority=1)
        await h.app.settings.update(audit_retention_period=timedelta(days=30), max_active_jobs=7)
        changed = (await h.app.audit.list())[0].id
        await h.app.settings.update(max_active_jobs=8)
        await h.app.settings.reset("audit_retention_period")
        await h.app.audit.undo(changed, force=True)
        await h.app.settings.update(audit_retention_period=timedelta(days=30))
    await h.advance(days=60)

    await h.cycle("dead_letter_cleanup")

    left = [(entry.action, entry.undoes) for entry in await h.app.audit.list()]
    assert left == [
        ("settings.update", None),
        ("settings.update", changed),
        ("settings.reset", None),
        ("settings.update", None),
    ]


@pytest.mark.parametrize("period", [timedelta(milliseconds=1), timedelta(days=29)])
async def test_the_retention_of_the_audit_has_a_floor(h: Harness, period: timedelta) -> None:
    with pytest.raises(InvalidSetting, match="audit_retention_period"):
        await h.app.settings.update(audit_retention_period=period)
    with pytest.raises(InvalidSetting, match="cannot be edited in the database"):
        await h.app.settings.update(audit_retention_floor=timedelta(days=30))


async def test_code_may_set_a_higher_floor(url: str) -> None:
    app = Trax(url, audit_retention_floor=timedelta(days=180))
    async with Harness(app, now=datetime(2027, 3, 1, tzinfo=UTC)):
        with pytest.raises(InvalidSetting, match=r"shorter than audit_retention_floor \(180 days\)"):
            await app.settings.update(audit_retention_period=timedelta(days=90))
        assert (await app.settings.update(audit_retention_period=timedelta(days=180))).audit_retention_floor
    with pytest.raises(InvalidSetting, match="audit_retention_floor"):
        Trax(url, audit_retention_floor=timedelta(days=400))


async def test_an_actor_needs_a_name(h: Harness) -> None:
    with pytest.raises(DefinitionError, match="an actor needs a name"), acting(Actor(" ")):
        raise AssertionError
    assert actor_context() is None
    assert h.app


async def test_long_lists_of_targets_are_cut(h: Harness) -> None:
    entries = await h.app.queue_many("divide", [1] * 150)
    with acting(ADA):
        await h.app.work_queue.cancel([entry.id for entry in entries])

    entry: AuditEntry
    (entry,) = await h.app.audit.list()
    assert (len(entry.ids), entry.count) == (100, 150)
