"""Check with `trax verify` that the history left behind by a test is clean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.inspect.verify import verify
from trax.records.verification import FindingKind
from trax.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def assert_limits_are_known(found: Verification, groups: Iterable[str]) -> None:
    """Verify knew the limits of these groups and of all at each admission: it left nothing undecided."""
    overlaps = [found.total, *found.groups]
    assert {each.group: each.unknown for each in overlaps if each.unknown} == {}
    limits = {each.group: each.limit for each in overlaps}
    assert {limits[name] is None for name in (None, *groups)} == {False}
    assert FindingKind.LIMIT_EXCEEDED not in found.undecided
