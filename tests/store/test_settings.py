from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import select
from tests.support.databases import IN_MEMORY_TOO

from trax.store import Store, settings
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

pytestmark = IN_MEMORY_TOO


def written_at(connection: Connection) -> dict[str, datetime]:
    setting = tables(connection).setting
    return {row.name: row.updated_at for row in connection.execute(select(setting))}


def test_no_setting_is_stored_until_an_edit(store: Store) -> None:
    assert store.read(settings.load_edited) == {}


def test_writing_adds_and_changes_and_leaves_the_others(store: Store, now: datetime) -> None:
    later = now + timedelta(minutes=1)
    store.run(settings.write, {"max_active_jobs": "5", "save_inputs": "false"}, now=now)

    store.run(settings.write, {"max_active_jobs": "null", "max_retry_delay": '"PT1H"'}, now=later)

    assert store.read(settings.load_edited) == {
        "max_active_jobs": "null",
        "save_inputs": "false",
        "max_retry_delay": '"PT1H"',
    }
    assert store.read(written_at) == {"max_active_jobs": later, "save_inputs": now, "max_retry_delay": later}


def test_deleting_settings_removes_only_the_named_ones(store: Store, now: datetime) -> None:
    store.run(settings.write, {"max_active_jobs": "5", "save_inputs": "false"}, now=now)

    store.run(settings.delete_edited, {"save_inputs", "never_written"})
    store.run(settings.delete_edited, ())
    store.run(settings.write, {}, now=now)

    assert store.read(settings.load_edited) == {"max_active_jobs": "5"}
