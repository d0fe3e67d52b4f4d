"""Share a limited number of places between groups of due manifests. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class DueCandidate(NamedTuple):
    """A manifest that is probably due, and its group."""

    manifest_id: int
    group_id: int
    group_priority: int


def select_fairly(
    candidates: Sequence[DueCandidate], limit: int | None, *, turn: int = 0
) -> list[DueCandidate]:
    """Select at most `limit` manifests, so that a large group does not starve the others.

    Each group gets an equal share first; the rest goes to the highest priority. If `limit` is less than the
    number of groups, groups take turns: `turn` decides which group comes first.
    """
    if limit is None or len(candidates) <= limit:
        return list(candidates)
    groups = _group_by_priority(candidates)
    if limit < len(groups):
        first = turn * limit % len(groups)
        return [members[0] for members in (groups[first:] + groups[:first])[:limit]]
    return _share_equally(groups, limit)


def _group_by_priority(candidates: Sequence[DueCandidate]) -> list[list[DueCandidate]]:
    """The members of each group, highest priority first; stable among equals."""
    groups: dict[int, list[DueCandidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.group_id, []).append(candidate)
    return sorted(groups.values(), key=lambda members: -members[0].group_priority)


def _share_equally(groups: list[list[DueCandidate]], limit: int) -> list[DueCandidate]:
    share = limit // len(groups)
    selected = [candidate for members in groups for candidate in members[:share]]
    rest = (candidate for members in groups for candidate in members[share:])
    return selected + [candidate for _, candidate in zip(range(limit - len(selected)), rest, strict=False)]
