"""Signs that something has changed, for those who keep watching."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Tag(StrEnum):
    """What has changed."""

    EXECUTIONS = "executions"
    QUEUE = "queue"
    MANIFESTS = "manifests"
    DEAD_LETTERS = "dead_letters"
    SETTINGS = "settings"
    WORKERS = "workers"
    AUDIT = "audit"


Pulse = Mapping[Tag, tuple[Any, ...]]
"""For each tag a few numbers that differ when what it stands for has changed."""


def changed(before: Pulse | None, after: Pulse) -> frozenset[Tag]:
    """Which tags are news; nothing is to somebody who has seen nothing before."""
    if before is None:
        return frozenset()
    return frozenset(tag for tag, marks in after.items() if before.get(tag) != marks)
