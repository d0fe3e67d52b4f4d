"""A module that nears its ceiling wants to be split by noun."""

from __future__ import annotations

from pathlib import Path

import trax

PACKAGE = Path(trax.__file__).parent
CEILING = 500


def test_no_module_is_longer_than_the_ceiling() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}

    assert {str(path): length for path, length in lengths.items() if length > CEILING} == {}
