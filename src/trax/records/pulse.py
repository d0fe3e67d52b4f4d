"""Change marks: cheap values that differ when something has changed, for live pages."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class ChangeTag(StrEnum):
    """What has changed."""

    EXECUTIONS = "executions"
    QUEUE = "queue"
    MANIFESTS = "manifests"
    DEAD_LETTERS = "dead_letters"
    SETTINGS = "settings"
    WORKERS = "workers"
    AUDIT = "audit"


ChangeMarks = Mapping[ChangeTag, tuple[Any, ...]]
"""For each tag a few values that differ when its data has changed."""


def find_changes(before: ChangeMarks | None, after: ChangeMarks) -> frozenset[ChangeTag]:
    """The tags that changed; none if there is no earlier state."""
    if before is None:
        return frozenset()
    return frozenset(tag for tag, marks in after.items() if before.get(tag) != marks)
