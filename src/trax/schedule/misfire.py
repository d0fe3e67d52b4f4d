"""The `on_misfire` option: what to do with missed occurrences."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from trax.bounds import is_integer
from trax.errors import DefinitionError, did_you_mean, format_value
from trax.records.states import MisfirePolicy
from trax.records.when import Misfire

OnMisfire: TypeAlias = Literal["fire_once_now", "do_nothing"] | Misfire

MAX_CATCH_UP: Final = 1000
"""Finding the oldest of 1000 missed cron occurrences takes about 20 ms at each check."""


def fire_all(limit: int) -> Misfire:
    """Run every missed occurrence, oldest first, but at most the latest `limit` of them."""
    if not is_integer(limit, 1, MAX_CATCH_UP):
        raise DefinitionError(f"fire_all needs a limit from 1 to {MAX_CATCH_UP} (got {format_value(limit)})")
    return Misfire(MisfirePolicy.FIRE_ALL, limit=limit)


def policy_and_limit(on_misfire: OnMisfire) -> tuple[MisfirePolicy, int | None]:
    """The policy and limit to store for an `on_misfire` option."""
    if isinstance(on_misfire, Misfire):
        return on_misfire.policy, on_misfire.limit
    if on_misfire in _POLICY_NAMES:
        return MisfirePolicy(on_misfire), None
    hint = did_you_mean(str(on_misfire), _POLICY_NAMES)
    raise DefinitionError(
        f'on_misfire must be "fire_once_now", "do_nothing" or fire_all(limit) '
        f"(got {format_value(on_misfire)}){hint}"
    )


_POLICY_NAMES = (MisfirePolicy.FIRE_ONCE_NOW.value, MisfirePolicy.DO_NOTHING.value)
