"""Who is served when not everyone can be. No I/O: give it counts, get a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Waiting(NamedTuple):
    """A manifest that looks due, and the group it belongs to."""

    manifest_id: int
    group_id: int
    group_priority: int


def chosen_fairly(waiting: Sequence[Waiting], limit: int | None, *, turn: int = 0) -> list[Waiting]:
    """Choose at most `limit`, so that a flood in one group does not shut out the others.

    Every group gets an equal share first; what is left goes to the highest priority. With fewer places than
    groups each gets one in its turn, and the turn decides which group begins.
    """
    if limit is None or len(waiting) <= limit:
        return list(waiting)
    groups = _by_priority(waiting)
    if limit < len(groups):
        first = turn * limit % len(groups)
        return [members[0] for members in (groups[first:] + groups[:first])[:limit]]
    return _shared(groups, limit)


def _by_priority(waiting: Sequence[Waiting]) -> list[list[Waiting]]:
    """The members of each group, highest priority first; among equals whoever came first."""
    groups: dict[int, list[Waiting]] = {}
    for one in waiting:
        groups.setdefault(one.group_id, []).append(one)
    return sorted(groups.values(), key=lambda members: -members[0].group_priority)


def _shared(groups: list[list[Waiting]], limit: int) -> list[Waiting]:
    share = limit // len(groups)
    chosen = [one for members in groups for one in members[:share]]
    leftovers = (one for members in groups for one in members[share:])
    return chosen + [one for _, one in zip(range(limit - len(chosen)), leftovers, strict=False)]
