"""What engines need from outside, started for each test and gone after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.support.amazon import Amazon
    from tests.support.valkey import Valkey


@pytest.fixture
def amazon() -> Generator[Amazon]:
    from tests.support.amazon import Amazon

    with Amazon() as server:
        yield server


@pytest.fixture
def valkey(tmp_path: Path) -> Generator[Valkey]:
    from tests.support.valkey import Valkey

    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()
