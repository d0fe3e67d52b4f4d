"""Who executes a train, and whether its runs occupy a place under the limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LOCAL: Final = "local"
"""Our own workers: a pending run of theirs is the job itself, so there is no hand-off to get lost in."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What the gate knows of trains: only names, since an entry may be for a train of another server."""

    submitters: Mapping[str, str] = field(default_factory=dict[str, str])
    exempt: frozenset[str] = frozenset()

    def submitter_of(self, train: str) -> str:
        return self.submitters.get(train, LOCAL)
