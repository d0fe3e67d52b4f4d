"""What `trax verify` says about a history that a test has left behind: nothing is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.inspect.verify import verify
from trax.records.verification import FindingKind
from trax.store import Store

if TYPE_CHECKING:
    from trax.records.verification import Verification


def assert_clean(url: str) -> Verification:
    """Verify the whole history of this database; returns what was found."""
    store = Store(url)
    try:
        return assert_clean_store(store)
    finally:
        store.close()


def assert_clean_store(store: Store) -> Verification:
    """The same for a store that is open."""
    found = verify(store)
    assert found.is_clean, "\n".join(finding.text for finding in found.findings)
    return found


def assert_limits_are_known(found: Verification) -> None:
    """The audit log has every limit at each admission, so that verify left nothing undecided."""
    overlaps = [found.total, *found.groups]
    assert {each.group: each.unknown for each in overlaps if each.unknown} == {}
    assert {each.group: each for each in overlaps if each.limit is None or not each.is_limit_known} == {}
    assert FindingKind.LIMIT_EXCEEDED not in found.undecided
