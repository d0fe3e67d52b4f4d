"""Programs of the machine that make faults, and a database whose history is verified after each test."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support import clock_steps, pgbouncer
from tests.support.verified import assert_clean

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


def missing(package: str, variable: str) -> None:
    message = f"there is no {package} for this test: apt-get install {package}"
    is_required = os.environ.get("CI") or os.environ.get(variable) == "1"
    pytest.fail(message) if is_required else pytest.skip(message)


@pytest.fixture
def pooler_program() -> Path:
    if not pgbouncer.PROGRAM.exists():
        missing("pgbouncer", "TRAX_REQUIRE_PGBOUNCER")
    return pgbouncer.PROGRAM


@pytest.fixture
def stepped_clocks() -> None:
    if clock_steps.library() is None:
        missing("faketime", "TRAX_REQUIRE_FAKETIME")


@pytest.fixture
def postgres_url(postgres_url: str) -> Generator[str]:
    yield postgres_url
    assert_clean(postgres_url)
