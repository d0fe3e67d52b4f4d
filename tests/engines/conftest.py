"""Brokers and servers that engines need, started for the tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.support.amazon import Amazon
    from tests.support.rabbitmq import Rabbit
    from tests.support.valkey import Valkey

RABBITMQ_REQUIRED = os.environ.get("CI") or os.environ.get("TRAX_REQUIRE_RABBITMQ") == "1"


@pytest.fixture(scope="session")
def one_amazon() -> Generator[Amazon]:
    """One for all tests of a process: it takes half a second to stop. Their queues are deleted after each."""
    from tests.support.amazon import Amazon

    with Amazon() as server:
        yield server


@pytest.fixture
def amazon(one_amazon: Amazon) -> Generator[Amazon]:
    yield one_amazon
    one_amazon.clear()


@pytest.fixture
def valkey(tmp_path: Path) -> Generator[Valkey]:
    from tests.support.valkey import Valkey

    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def one_rabbit(tmp_path_factory: pytest.TempPathFactory) -> Generator[Rabbit]:
    """One for all tests of a process: it takes seconds to start. They have a queue each."""
    from tests.support.rabbitmq import SERVER, Rabbit

    if not SERVER.exists():
        message = "there is no RabbitMQ for Celery to use: apt-get install rabbitmq-server"
        pytest.fail(message) if RABBITMQ_REQUIRED else pytest.skip(message)
    broker = Rabbit(tmp_path_factory.mktemp("rabbit") / "broker")
    try:
        yield broker
    finally:
        broker.remove()


@pytest.fixture
def rabbit(one_rabbit: Rabbit) -> Rabbit:
    one_rabbit.start()
    return one_rabbit
