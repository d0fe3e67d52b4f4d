"""What is to happen to occurrences that were missed, as it is declared."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from trax.bounds import is_whole
from trax.errors import DefinitionError, did_you_mean, shown
from trax.records.states import MisfirePolicy
from trax.records.when import Misfire

OnMisfire: TypeAlias = Literal["fire_once_now", "do_nothing"] | Misfire

MOST_MADE_UP: Final = 1000
"""Finding the oldest of so many missed cron occurrences takes some 20 ms, at every look."""


def fire_all(limit: int) -> Misfire:
    """Make up every missed occurrence, oldest first, but no more than the latest `limit` of them."""
    if not is_whole(limit, 1, MOST_MADE_UP):
        raise DefinitionError(f"fire_all takes a limit from 1 to {MOST_MADE_UP} (got {shown(limit)})")
    return Misfire(MisfirePolicy.FIRE_ALL, limit=limit)


def policy_and_limit(on_misfire: OnMisfire) -> tuple[MisfirePolicy, int | None]:
    """What is stored for an `on_misfire` option."""
    if isinstance(on_misfire, Misfire):
        return on_misfire.policy, on_misfire.limit
    if on_misfire in _SAID_BY_NAME:
        return MisfirePolicy(on_misfire), None
    hint = did_you_mean(str(on_misfire), _SAID_BY_NAME)
    raise DefinitionError(
        f'on_misfire must be "fire_once_now", "do_nothing" or fire_all(limit) (got {shown(on_misfire)}){hint}'
    )


_SAID_BY_NAME = (MisfirePolicy.FIRE_ONCE_NOW.value, MisfirePolicy.DO_NOTHING.value)
