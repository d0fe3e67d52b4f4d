"""The API has the nouns and verbs of the Python resources, and their records as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.web_app import railway, web_app

from trax import Trax
from trax.records.metadata import NewLogLine
from trax.store import listing
from trax.store.runs import run_log
from trax.web import create

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.support.web_app import WebApp

RECORDS = {
    "Metadata": "id external_id train state manifest group priority attempt input output created_at "
    "started_at ended_at failure_junction failure_exception failure_reason stack_trace parent_id submitter "
    "worker host progress current_junction cancel_requested",
    "WorkQueueEntry": "id external_id train status origin priority manifest group input metadata_id "
    "scheduled_at created_at dispatched_at dispatch_attempts dead_letter_id",
    "Manifest": "id external_id train group schedule schedule_type enabled priority max_retries timeout "
    "depends_on input failure_count last_successful_run next_due_at",
    "ManifestGroup": "id name priority max_active_jobs enabled",
    "DeadLetter": "id manifest train status reason retry_count input dead_lettered_at resolved_at note "
    "retry_metadata_id",
}


@pytest.fixture
async def room(url: str) -> AsyncGenerator[WebApp]:
    async with web_app(url) as opened:
        yield opened


async def fails(room: WebApp, *cups: int) -> list[dict[str, Any]]:
    """Orders that give up at once; their dead letters, newest first."""
    for number in cups:
        await room.app.queue("serve_coffee", {"customer": "Mallory", "cups": number})
    await room.harness.run_until_idle()
    return (await room.get("/dead-letters"))["items"]


def test_the_document_names_every_attribute_of_the_records() -> None:
    document = create(railway("memory://")).openapi()

    for name, attributes in RECORDS.items():
        assert set(attributes.split()) <= set(document["components"]["schemas"][name]["properties"])


async def test_a_queued_train_runs_and_its_record_can_be_read(room: WebApp) -> None:
    entry = await room.post(
        "/trains/serve_coffee/queue", {"input": {"customer": "Eve", "cups": 2}, "priority": 7}, status=201
    )
    await room.harness.run_until_idle()

    passed = await room.get(f"/queue/{entry['id']}")
    run = await room.get(f"/executions/{passed['metadata_id']}")
    assert (entry["status"], entry["priority"], passed["status"]) == ("queued", 7, "dispatched")
    assert (run["state"], run["output"], run["priority"]) == ("completed", "Eve has 2", 7)


def test_durations_are_text_in_all_of_the_document() -> None:
    document = json.dumps(create(railway("memory://")).openapi())

    assert '"format": "duration"' not in document
    assert re.findall(r'"\w+_seconds"', document) == []


@pytest.mark.parametrize("delay", ["90s", "1m30s", "PT1M30S", 90])
async def test_a_delayed_entry_waits_for_its_moment(room: WebApp, delay: str | float) -> None:
    body = {"input": {"customer": "Eve"}, "delay": delay, "timeout": "25 min"}

    entry = await room.post("/trains/serve_coffee/queue", body, status=201)

    assert entry["scheduled_at"] == "2027-03-01T12:01:30Z"
    assert (await room.get(f"/queue/{entry['id']}/why"))[0]["code"] == "delayed"


async def test_an_invalid_input_is_reported_field_by_field(room: WebApp) -> None:
    body = {"input": {"cups": "many"}}

    told = await room.post("/trains/serve_coffee/queue", body, status=422)

    assert told["code"] == "invalid_input"
    assert {field["path"] for field in told["fields"]} == {"customer", "cups"}


async def test_a_body_with_several_mistakes_names_each(room: WebApp) -> None:
    body: dict[str, Any] = {"input": {}, "priority": 99, "delay": -1, "timeout": "soon", "typo": True}

    told = await room.post("/trains/serve_coffee/queue", body, status=422)

    assert {field["path"] for field in told["fields"]} == {f"body.{name}" for name in body if name != "input"}
    assert "expected a duration such as 90s" in str(told["fields"])


async def test_a_train_can_be_run_directly(room: WebApp) -> None:
    done = await room.post("/trains/serve_coffee/run", {"input": {"customer": "Eve"}})
    failed = await room.post("/trains/serve_coffee/run", {"input": {"customer": "Eve", "cups": 10}})

    assert (done["state"], done["output"]) == ("completed", "Eve has 1")
    assert (failed["state"], failed["failure_reason"]) == ("failed", "10 cups are too many")


async def test_a_train_has_the_schema_of_its_input(room: WebApp) -> None:
    listed = await room.get("/trains")
    train = await room.get("/trains/serve_coffee")

    assert [each["name"] for each in listed["items"]] == ["serve_coffee"]
    assert listed["has_code"] is True
    assert train["input_schema"]["required"] == ["customer"]


@pytest.mark.parametrize(
    "path",
    [
        "/trains/nobody",
        "/manifests/nobody",
        "/manifests/nobody/why",
        "/groups/nobody",
        "/queue/999",
        "/queue/999/why",
        "/executions/999",
        "/executions/999/logs",
        "/dead-letters/999",
        "/workers/999",
        "/audit/999",
        "/nothing",
    ],
)
async def test_an_unknown_name_or_id_is_not_found(room: WebApp, path: str) -> None:
    answer = await room.api.get(f"/api/v1{path}")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "not_found"


async def test_a_name_that_no_database_can_hold_is_not_found(room: WebApp) -> None:
    for path in ("/manifests/a%00b", "/manifests/a%00b/why", "/groups/a%00b", "/trains/a%00b"):
        assert (await room.api.get(f"/api/v1{path}")).status_code == 404
    for path in ("/manifests/a%00b/trigger", "/manifests/a%00b/enable", "/groups/a%00b/trigger"):
        assert (await room.api.post(f"/api/v1{path}")).status_code == 404
    for noun, filters in {
        "manifests": ("group", "train", "text", "depends_on"),
        "executions": ("group", "train", "manifest", "external_id"),
        "queue": ("group", "train", "manifest"),
        "dead-letters": ("manifest", "fingerprint"),
        "logs": ("text",),
        "audit": ("actor", "action", "noun", "target"),
    }.items():
        for name in filters:
            assert (await room.get(f"/{noun}", **{name: "a\x00b"}))["items"] == []


async def test_an_unknown_path_or_method_is_explained(room: WebApp) -> None:
    nowhere, wrongly = await room.api.get("/api/v1/nothing"), await room.api.delete("/api/v1/groups")

    assert nowhere.json()["detail"] == "no such path"
    assert (wrongly.status_code, wrongly.json()["code"]) == (405, "method_not_allowed")
    assert wrongly.json()["detail"] == "this path does not support this method"


async def test_lists_are_read_page_by_page(room: WebApp) -> None:
    for number in range(5):
        await room.app.queue("serve_coffee", {"customer": f"guest {number}"})

    pages: list[list[int]] = []
    before = None
    while not pages or before is not None:
        page = await room.get("/queue", limit=2, **({"before": before} if before else {}))
        pages.append([entry["id"] for entry in page["items"]])
        before = page["next"]

    assert [len(page) for page in pages] == [2, 2, 1]
    seen = list(chain(*pages))
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 201}, {"after": -1}, {"after": 2**63}, {"state": "odd"}]
)
async def test_a_page_is_bounded(room: WebApp, query: dict[str, Any]) -> None:
    answer = await room.api.get("/api/v1/executions", params=query)

    assert answer.status_code == 422
    assert answer.json()["fields"][0]["path"] == f"query.{next(iter(query))}"


async def test_a_list_can_be_narrowed(room: WebApp) -> None:
    await fails(room, 10)
    await room.harness.run_until_idle()

    failed = await room.get("/executions", state="failed")
    done = await room.get("/executions", state="completed", manifest="ada")

    assert [run["state"] for run in failed["items"]] == ["failed"]
    assert [run["manifest"] for run in done["items"]] == ["ada"]


async def test_administrative_runs_are_hidden_unless_wanted(room: WebApp) -> None:
    await room.harness.run_until_idle()

    usual = {run["train"] for run in (await room.get("/executions"))["items"]}
    all_of_them = {run["train"] for run in (await room.get("/executions", admin=True))["items"]}

    assert usual == {"serve_coffee"}
    assert "trax.manifest_manager" in all_of_them


async def test_a_manifest_is_paused_triggered_and_resumed(room: WebApp) -> None:
    paused = await room.post("/manifests/ada/disable")
    entry = await room.post("/manifests/ada/trigger", {"delay": 60}, status=201)
    resumed = await room.post("/manifests/ada/enable")

    assert (paused["enabled"], resumed["enabled"]) == (False, True)
    assert (entry["manifest"], entry["origin"], entry["scheduled_at"]) == (
        "ada",
        "trigger",
        "2027-03-01T12:01:00Z",
    )


async def test_a_manifest_may_have_a_slash_in_its_name(room: WebApp) -> None:
    paused = await room.post("/manifests/by/night/disable")
    reasons = await room.get("/manifests/by/night/why")

    assert (paused["external_id"], paused["enabled"]) == ("by/night", False)
    assert reasons[0]["code"] == "disabled"


async def test_a_manifest_that_is_deleted_is_retired(room: WebApp) -> None:
    gone = await room.api.delete("/api/v1/manifests/ada")

    assert gone.status_code == 204
    assert [each["external_id"] for each in (await room.get("/manifests"))["items"]] == ["by/night"]
    (retired,) = (await room.get("/manifests", retired=True))["items"]
    assert (retired["external_id"], retired["retired_at"]) == ("ada", "2027-03-01T12:00:00Z")
    assert (await room.api.post("/api/v1/manifests/ada/trigger")).status_code == 409


async def test_a_group_is_limited_and_triggered(room: WebApp) -> None:
    changed = await room.patch("/groups/bar", {"max_active_jobs": None, "priority": 9})
    triggered = await room.post("/groups/bar/trigger")

    assert (changed["max_active_jobs"], changed["priority"], changed["enabled"]) == (None, 9, True)
    assert triggered == {"triggered": 2}


async def test_entries_that_are_not_queued_any_more_are_skipped(room: WebApp) -> None:
    first = await room.app.queue("serve_coffee", {"customer": "Eve"})
    await room.harness.run_until_idle()
    second = await room.app.queue("serve_coffee", {"customer": "Eve"})

    told = await room.post("/queue/cancel", {"ids": [first.id, second.id]})
    too_late = await room.post(f"/queue/{second.id}/cancel", status=409)

    assert told == {"cancelled": [second.id], "skipped": 1}
    assert too_late["code"] == "conflict"


async def test_a_run_that_is_over_cannot_be_cancelled_but_run_again(room: WebApp) -> None:
    done = await room.post("/trains/serve_coffee/run", {"input": {"customer": "Eve"}})

    too_late = await room.post(f"/executions/{done['id']}/cancel", status=409)
    entry = await room.post(f"/executions/{done['id']}/rerun", status=201)

    assert "already completed" in too_late["detail"]
    assert (entry["origin"], entry["input"]["customer"]) == ("rerun", "Eve")


async def test_a_run_whose_input_was_not_saved_cannot_be_run_again(room: WebApp) -> None:
    await room.patch("/settings", {"save_inputs": False})
    done = await room.post("/trains/serve_coffee/run", {"input": {"customer": "Eve"}})

    refused = await room.post(f"/executions/{done['id']}/rerun", status=409)

    assert refused["code"] == "cannot_rerun"
    assert "save_inputs" in refused["detail"]


async def test_a_canary_is_requeued_and_then_the_rest(room: WebApp) -> None:
    letters = await fails(room, 10, 11, 12)
    (group,) = await room.get("/dead-letters/groups")

    canary = await room.post("/dead-letters/requeue", {"fingerprint": group["fingerprint"], "limit": 1})
    rest = await room.post("/dead-letters/requeue", {"fingerprint": group["fingerprint"]})

    assert (group["count"], len(letters)) == (3, 3)
    assert (canary["requeued"], rest["requeued"]) == (1, 2)


async def test_a_dead_letter_is_acknowledged_once(room: WebApp) -> None:
    (letter,) = await fails(room, 10)

    done = await room.post(f"/dead-letters/{letter['id']}/acknowledge", {"note": "no such cup"})
    too_late = await room.post(f"/dead-letters/{letter['id']}/requeue", status=409)

    assert (done["status"], done["note"]) == ("acknowledged", "no such cup")
    assert "already acknowledged" in too_late["detail"]


async def test_a_requeue_needs_exactly_one_selection(room: WebApp) -> None:
    told = await room.post("/dead-letters/requeue", {"ids": [1], "all": True}, status=422)

    assert told["fields"] == [{"path": "body", "message": "give exactly one of ids, fingerprint and all"}]


async def test_all_dead_letters_are_acknowledged_with_a_note(room: WebApp) -> None:
    await fails(room, 10, 11)

    told = await room.post("/dead-letters/acknowledge", {"all": True, "note": "known"})

    assert told == {"acknowledged": 2, "skipped": 0}


async def test_settings_are_changed_and_reset(room: WebApp) -> None:
    changed = await room.patch("/settings", {"max_active_jobs": 4, "default_retry_delay": 30})
    reset = await room.post("/settings/reset", {"names": ["max_active_jobs"]})

    def told(settings: Any, name: str) -> tuple[Any, str]:
        (one,) = (each for each in settings if each["name"] == name)
        return one["value"], one["origin"]

    assert told(changed, "max_active_jobs") == (4, "operator")
    assert told(changed, "default_retry_delay") == ("30 s", "operator")
    assert told(reset, "max_active_jobs") == (10, "default")
    assert "listen_url" not in {each["name"] for each in changed}


async def test_a_setting_that_cannot_work_is_refused(room: WebApp) -> None:
    told = await room.patch("/settings", {"max_active_jobs": -1, "default_retry_delay": "soon"}, status=422)
    unknown = await room.patch("/settings", {"max_activ_jobs": 1, "listen_url": "here"}, status=422)

    assert {field["path"] for field in told["fields"]} == {"max_active_jobs", "default_retry_delay"}
    assert {field["path"] for field in unknown["fields"]} == {"max_activ_jobs", "listen_url"}


async def test_a_change_is_in_the_audit_with_who_and_why(room: WebApp) -> None:
    await room.post("/manifests/ada/disable", reason="noisy since früh")

    (entry,) = (await room.get("/audit"))["items"]
    assert (entry["actor"], entry["via"], entry["action"]) == ("deploy", "api", "manifests.disable")
    assert (entry["ids"], entry["reason"]) == (["ada"], "noisy since früh")


async def test_a_change_of_settings_can_be_undone(room: WebApp) -> None:
    await room.patch("/settings", {"max_active_jobs": 4})
    (entry,) = (await room.get("/audit"))["items"]

    undone = await room.post(f"/audit/{entry['id']}/undo")

    assert undone["undoes"] == entry["id"]
    assert await room.app.settings.get("max_active_jobs") == 10
    await room.post(f"/audit/{entry['id']}/undo", status=409)


async def test_statistics_of_all_kinds_can_be_read(room: WebApp) -> None:
    await fails(room, 10)

    home = await room.get("/stats/home")

    assert home["dead_letters"] == {"number": 1, "exact": True}
    for noun in ("throughput", "durations", "failing", "blocks", "states", "groups", "graph"):
        await room.get(f"/stats/{noun}")


async def test_why_accepts_a_name_or_a_number(room: WebApp) -> None:
    await room.post("/manifests/ada/disable")
    entry = await room.app.queue("serve_coffee", {"customer": "Eve"})

    assert (await room.get("/why", manifest="ada"))[0]["code"] == "disabled"
    assert (await room.get("/why", entry=entry.id))[0]["code"] == "no_worker"
    assert (await room.api.get("/api/v1/why")).status_code == 422


async def test_secrets_are_hidden_wherever_inputs_are_shown(room: WebApp) -> None:
    secret = {"customer": "Eve", "cups": 10, "password": "hunter2"}

    await room.post("/trains/serve_coffee/queue", {"input": secret}, status=201)
    await room.harness.run_until_idle()

    for noun in ("queue", "executions", "dead-letters"):
        shown = (await room.api.get(f"/api/v1/{noun}", params={"full": True})).text
        assert "hunter2" not in shown
        assert "••••••" in shown


async def test_a_list_can_be_counted_and_read_backwards(room: WebApp) -> None:
    for number in range(3):
        await room.app.queue("serve_coffee", {"customer": f"guest {number}"})

    first = await room.get("/queue", limit=2, total=True)
    second = await room.get("/queue", limit=2, before=first["next"])
    again = await room.get("/queue", limit=2, after=second["previous"])

    assert first["total"] == {"count": 3, "exact": True}
    assert (first["previous"], second["next"]) == (None, None)
    assert again["items"] == first["items"]


async def test_a_total_is_exact_to_the_bound_with_any_filter(
    room: WebApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "COUNT_LIMIT", 4)
    monkeypatch.setattr(listing, "WINDOW", 2)
    for group in ("few", "many", "many", "few", *["many"] * 5):
        await room.app.queue("serve_coffee", {"customer": "Eve"}, group=group)

    few = await room.get("/queue", group="few", total=True)
    many = await room.get("/queue", group="many", total=True)

    assert few["total"] == {"count": 2, "exact": True}
    assert many["total"]["exact"] is False
    assert many["total"]["count"] >= 5


async def test_manifests_are_read_forwards_and_backwards(room: WebApp) -> None:
    first = await room.get("/manifests", limit=1, total=True)
    second = await room.get("/manifests", limit=1, after=first["next"])
    again = await room.get("/manifests", limit=1, before=second["previous"])

    assert [page["items"][0]["external_id"] for page in (first, second, again)] == ["ada", "by/night", "ada"]
    assert (first["total"], second["next"]) == ({"count": 2, "exact": True}, None)


async def test_log_lines_of_all_runs_can_be_searched(room: WebApp) -> None:
    await room.post("/trains/serve_coffee/run", {"input": {"customer": "Eve"}})
    await room.harness.cycle("run_log")

    found = await room.get("/logs", text="Eve", level="warning")
    nothing = await room.get("/logs", text="Mallory")

    assert [line["message"] for line in found["items"]] == ["coffee for Eve"]
    assert nothing["items"] == []


async def test_the_log_of_a_run_is_listed(room: WebApp) -> None:
    done = await room.post("/trains/serve_coffee/run", {"input": {"customer": "Eve"}})
    await room.harness.cycle("run_log")

    (line,) = (await room.get(f"/executions/{done['id']}/logs"))["items"]
    assert (line["level"], line["message"]) == ("warning", "coffee for Eve")


async def test_the_lines_of_a_run_are_paged_in_both_directions(room: WebApp) -> None:
    async def page(**asked: Any) -> tuple[list[int], int | None, int | None]:
        found = await room.get(f"/executions/{done['id']}/logs", limit=2, **asked)
        return [line["id"] for line in found["items"]], found["next"], found["previous"]

    done = await room.post("/trains/serve_coffee/run", {"input": {"customer": "Eve"}})
    await room.harness.cycle("run_log")
    store = await room.app.context.store.open()
    (line,) = await room.app.executions.logs(done["id"])
    values = {each.name: getattr(line, each.name) for each in fields(NewLogLine)}
    await store.call(run_log.add, [NewLogLine(**values) for _ in range(4)])
    one, two, three, four, five = [each.id for each in await room.app.executions.logs(done["id"])]

    assert await page() == ([one, two], two, None)
    assert await page(after=two) == ([three, four], four, three)
    assert await page(after=four) == ([five], None, five)
    assert await page(before=five) == ([three, four], four, three)
    assert await page(before=three) == ([one, two], two, one)
    assert await page(before=five, after=two) == ([three, four], four, three)


async def test_without_the_apps_code_a_train_is_queued_by_its_name(url: str) -> None:
    async with web_app(url, app=Trax(url)) as room:
        store = await room.app.context.store.open()
        row = {"plain_fields": '{"elsewhere": null}', "kind": "worker"}
        await store.call(room.app.context.heartbeat.register, store, row)
        entry = await room.post("/trains/elsewhere/queue", {"input": {"any": "thing"}}, status=201)
        refused = await room.post("/trains/elsewhere/run", {"input": {}}, status=409)

    assert (entry["train"], entry["input"]) == ("elsewhere", {"any": "thing"})
    assert refused["hint"] == "start it with the app: trax dashboard APP"
