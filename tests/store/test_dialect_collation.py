"""A server of any language: what is text has the order of its bytes, as in SQLite and in Python."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from trax.store import Store, groups

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Connection
    from tests.support.databases import PostgresDatabases

NAMES = ["apple", "Zoo", "_x", "äpfel", "a-b", "ab", "a b", "A"]
NOW = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.fixture
def english(postgres_databases: PostgresDatabases) -> Generator[Store]:
    with postgres_databases.database(language="en-US") as address:
        store = Store(address)
        store.open()
        yield store
        store.close()


def languages_of_text(connection: Connection) -> set[str]:
    """Of every column that is text, the order it is kept in."""
    found = connection.execute(
        text(
            "SELECT DISTINCT coalesce(collation_name, 'of the server') FROM information_schema.columns "
            "WHERE table_schema = 'trax' AND data_type = 'text'"
        )
    )
    return set(found.scalars())


def test_names_have_one_order_in_any_language_of_the_server(english: Store) -> None:
    english.run(groups.get_or_create, NAMES, now=NOW)

    listed = [group.name for group in english.run(groups.load_list)]

    assert listed == sorted(NAMES)


def test_no_text_is_left_to_the_language_of_the_server(english: Store) -> None:
    assert english.run(languages_of_text) == {"C"}
