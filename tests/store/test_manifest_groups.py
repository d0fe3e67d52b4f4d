from __future__ import annotations

from typing import TYPE_CHECKING

from trax.records import ManifestGroup
from trax.store import Store, groups

if TYPE_CHECKING:
    from datetime import datetime


def test_groups_are_made_when_first_named(store: Store, now: datetime) -> None:
    made = store.run(groups.get_or_create, ["etl", "mail", "etl"], now=now)

    again = store.run(groups.get_or_create, ["mail", "new"], now=now)

    assert set(made) == {"etl", "mail"}
    assert again["mail"] == made["mail"]
    assert store.read(groups.get, "new") == ManifestGroup(id=again["new"].id, name="new")


def test_an_unknown_group_is_none(store: Store) -> None:
    assert store.read(groups.get, "none") is None
