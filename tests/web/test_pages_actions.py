"""Actions of an operator on the pages, without scripts: forms, confirmations and messages."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.roastery_dashboard import BILL, roastery_dashboard

from trax.web import Access, Role


async def test_a_train_is_run_with_a_form(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/trains/import_orders")
        entry = await room.send(
            page,
            "Queue",
            {"in:source": "shop", "in:limit": "7", "in:dry_run": "yes", "priority": "9", "delay": "2h"},
        )
        (queued,) = await room.app.work_queue.list(train="import_orders")

    assert page.fields["in:limit"]["value"] == "100"
    assert entry.path == f"/queue/{queued.id}"
    assert f"import_orders is queued as entry {queued.id}" in entry.text
    assert queued.input == {"source": "shop", "day": None, "limit": 7, "dry_run": True}
    assert (queued.priority, queued.scheduled_at) == (9, room.harness.now + timedelta(hours=2))


async def test_an_invalid_input_is_reported_at_its_field_and_the_typed_text_stays(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/trains/import_orders")
        refused = await room.send(page, "Queue", {"in:source": "", "in:limit": "900", "in:day": "someday"})

        assert await room.app.work_queue.list(train="import_orders") == []
    assert refused.status == 422
    assert refused.fields["in:limit"]["value"] == "900"
    assert refused.fields["in:limit"]["aria-invalid"] == "true"
    assert refused.fields["in:source"]["aria-describedby"] == "wrong-source"
    assert "less than or equal to 500" in refused.text
    assert "Field required" in refused.text


async def test_lists_grow_and_shrink_and_turn_into_json_and_back(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/trains/charge_card")
        one = await room.send(page, "Add item", {"in:customer.name": "Ada"})
        two = await room.send(one, "Add item", {"in:lines.0.sku": "sidamo"})
        less = await room.send(two, "Remove lines 1", {"in:lines.1.sku": "harrar"})
        as_json = await room.send(less, "Edit as JSON")
        back = await room.send(as_json, "Edit in fields")
        await room.send(as_json, "Queue")
        (queued,) = await room.app.work_queue.list(train="charge_card")

    assert (two.fields["in:customer.name"]["value"], two.fields["in:lines.size"]["value"]) == ("Ada", "2")
    assert (less.fields["in:lines.0.sku"]["value"], "in:lines.1.sku" in less.fields) == ("harrar", False)
    assert back.fields["in:lines.0.sku"]["value"] == "harrar"
    assert queued.input["lines"] == [{"sku": "harrar", "bags": 1}]


async def test_invalid_json_is_reported_and_kept(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/trains/charge_card", **{"as": "json"})
        refused = await room.send(page, "Queue", {"json": '{"customer": '})

    assert refused.status == 422
    assert "invalid JSON" in refused.text
    assert '{"customer":' in refused.text


async def test_a_limit_is_changed_and_the_change_is_written_down_and_undone(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/groups/orders")
        saved = await room.send(page, "Save", {"max_active_jobs": "7", "priority": "3"})
        changed = await room.app.groups.get("orders")
        audit = await room.open("/audit")
        question = await room.send(audit, "Undo")
        undone = await room.send(question, "Yes", {"reason": "it was too many"})
        entries = await room.app.audit.list()

    assert "orders: at most 7 active jobs, priority 3" in saved.text
    assert (changed.max_active_jobs, changed.priority) == (7, 3)
    assert "Are you sure?" in question.text
    assert "Undone" in undone.text
    assert entries[0].reason == "it was too many"
    assert [entry.actor for entry in entries] == ["anonymous", "anonymous"]


async def test_an_empty_limit_is_none_and_an_invalid_one_is_refused(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/groups/orders")
        await room.send(page, "Save", {"max_active_jobs": ""})
        refused = await room.send(page, "Save", {"max_active_jobs": "lots"})
        group = await room.app.groups.get("orders")

    assert group.max_active_jobs is None
    assert "'lots' is not a whole number" in refused.text


async def test_a_group_is_paused_resumed_and_run(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/groups/roastery")
        paused = await room.send(page, "Pause")
        is_enabled = (await room.app.groups.get("roastery")).enabled
        resumed = await room.send(paused, "Resume")
        ran = await room.send(resumed, "Run all")

    assert is_enabled is False
    assert "1 group resumed" in resumed.text
    assert "1 group triggered (2 entries)" in ran.text


async def test_chosen_manifests_are_run_and_paused_together(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/manifests")
        ran = await room.send(page, "Run now", {"ids": ["import-shop", "import-market"]})
        paused = await room.send(ran, "Pause", {"ids": ["import-shop"]})
        entries = await room.app.work_queue.list(origin="trigger")
        manifest = await room.app.manifests.get("import-shop")

    assert "2 manifests triggered" in ran.text
    assert "1 manifest paused" in paused.text
    assert (len(entries), manifest.enabled) == (2, False)


async def test_cancelling_entries_counts_those_that_waited_no_longer(url: str) -> None:
    async with roastery_dashboard(url) as room:
        gone = await room.app.queue("roast_batch", {"beans": "a"})
        await room.harness.run_until_idle()
        waiting = [await room.app.queue("roast_batch", {"beans": "b"}) for _ in range(2)]
        page = await room.open("/queue", train="roast_batch")
        question = await room.send(page, "Cancel", {"ids": [entry.id for entry in (gone, *waiting)]})
        answer = await room.send(question, "Yes")

    assert "3 entries will be cancelled" in question.text
    assert "2 entries cancelled; 1 skipped" in answer.text
    assert answer.address == "/queue?train=roast_batch"


async def test_one_dead_letter_is_tried_before_the_rest(url: str) -> None:
    async with roastery_dashboard(url) as room:
        for name in ("Ada", "Bob", "Cy"):
            await room.app.queue("charge_card", {**BILL, "customer": {"name": name}})
        await room.harness.run_until_idle()
        page = await room.open("/dead-letters")
        room.world.card_works = True
        tried = await room.send(page, "Try one")
        await room.harness.run_until_idle()
        (first,) = await room.app.dead_letters.list(status="retried")
        question = await room.send(tried, "Requeue all of this kind")
        done = await room.send(question, "Yes")
        await room.harness.run_until_idle()
        completed = await room.app.executions.list(train="charge_card", state="completed")

    assert "1 dead letter requeued" in tried.text
    assert first.id == 1
    assert "2 dead letters requeued" in done.text
    assert "No dead letters." in done.text
    assert len(completed) == 3


async def test_acknowledging_needs_a_note(url: str) -> None:
    async with roastery_dashboard(url) as room:
        await room.app.queue("charge_card", BILL)
        await room.harness.run_until_idle()
        alone = await room.open("/dead-letters")
        page = await room.open("/dead-letters/1")
        refused = await room.send(page, "Acknowledge")
        closed = await room.send(refused, "Acknowledge", {"note": "the shop paid by hand"})
        late = await room.send(page, "Requeue")

    assert (alone.has_button("Try one"), alone.has_button("Requeue all of this kind")) == (True, False)
    assert "Acknowledging needs a note" in refused.text
    assert "the shop paid by hand" in closed.text
    assert not closed.has_button("Requeue")
    assert "Nothing was requeued: already resolved." in late.text


async def test_a_run_is_cancelled_and_run_again(url: str) -> None:
    async with roastery_dashboard(url) as room:
        await room.app.queue("roast_batch", {"beans": "Sidamo"})
        await room.harness.cycle("job_dispatcher")
        (run,) = await room.app.executions.list(train="roast_batch")
        page = await room.open(f"/executions/{run.id}")
        stopped = await room.send(await room.send(page, "Cancel"), "Yes")
        again = await room.send(stopped, "Run again")
        (entry,) = await room.app.work_queue.list(origin="rerun")

    assert "Cancellation requested for 1 execution" in stopped.text
    assert "cancelled" in stopped.text
    assert f"Queued again as entry {entry.id}" in again.text
    assert entry.input == {"beans": "Sidamo", "minutes": 12.5}


async def test_a_run_whose_input_was_not_saved_cannot_be_run_again(url: str) -> None:
    async with roastery_dashboard(url) as room:
        await room.app.settings.update(save_inputs=False)
        await room.app.queue("roast_batch", {"beans": "Sidamo"})
        await room.harness.run_until_idle()
        (run,) = await room.app.executions.list(train="roast_batch")
        page = await room.open(f"/executions/{run.id}")

    assert not page.has_button("Run again")
    assert "save_inputs is off" in page.text


async def test_a_setting_is_edited_reset_and_refused(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/settings")
        saved = await room.send(page, "Save", {"value": "50"}, name="max_active_jobs")
        after_saving = await room.app.settings.get("max_active_jobs")
        refused = await room.send(saved, "Save", {"value": "often"}, name="heartbeat_interval")
        reset = await room.send(saved, "Reset", name="max_active_jobs")
        after_reset = await room.app.settings.get("max_active_jobs")

    assert "max_active_jobs is now 50" in saved.text
    assert "expected a duration such as 90s, 25 min" in refused.text
    assert "max_active_jobs reset to the value from code and environment" in reset.text
    assert (after_saving, after_reset) == (50, 10)


async def test_preferences_of_a_viewer_stay_in_their_browser(url: str) -> None:
    async with roastery_dashboard(url) as room:
        page = await room.open("/settings")
        await room.send(page, "Save preferences", {"pace": "30", "shown": ["tiles"], "admin": "1"})
        home = await room.open("/")

    assert "Executions today" in home.text
    assert "Failing trains" not in home.text
    assert 'data-pace="30"' in home.source


@pytest.mark.parametrize("path", ["/groups/orders", "/queue", "/settings", "/trains/import_orders", "/audit"])
async def test_a_viewer_is_refused_by_the_server(url: str, path: str) -> None:
    async with roastery_dashboard(url, Access(allow_anonymous=Role.VIEWER)) as room:
        answer = await room.reader.client.post(path, data={"action": "disable"})

        is_enabled = (await room.app.groups.get("orders")).enabled

    assert (answer.status_code, is_enabled) == (403, True)


async def test_a_form_without_our_token_changes_nothing(url: str) -> None:
    async with roastery_dashboard(url) as room:
        await room.open("/groups/orders")
        headers = {"Sec-Fetch-Site": "same-origin"}
        answer = await room.reader.client.post("/groups/orders", data={"action": "disable"}, headers=headers)

        assert answer.status_code == 403
        assert (await room.app.groups.get("orders")).enabled
