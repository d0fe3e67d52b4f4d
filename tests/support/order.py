"""The order in which the workers of a test run get the tests: first those that last long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

LONG: Final = (
    ("tests/chaos/",),
    ("tests/engines/", "tests/simulation/", "tests/bench/"),
    ("tests/web/browser/", "tests/testing/", "tests/house/test_wheel.py"),
    ("tests/cli/", "tests/house/test_docs.py", "tests/house/test_tutorial.py"),
)
"""About as long as each other; in each, what starts the same broker, server or browser is together."""


def spread(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Begin the share of each worker with long tests: short ones are then left, for whoever is done first.

    A worker is given its share in one piece, and takes from the end of another's when it has none left.
    """
    heads: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for place, prefixes in enumerate(LONG):
        heads[place % workers] += [item for item in items if item.nodeid.startswith(prefixes)]
    is_long = {item for head in heads for item in head}
    short = [item for item in items if item not in is_long]
    ordered: list[pytest.Item] = []
    for place, head in enumerate(heads):
        share = (len(items) - len(ordered)) // (workers - place)
        if len(head) > share:
            return list(items)
        rest = share - len(head)
        ordered += [*head, *short[:rest]]
        del short[:rest]
    return ordered
