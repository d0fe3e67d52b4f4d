"""From the address a person writes to the one SQLAlchemy needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from trax.errors import InvalidUrl
from trax.masking import mask_url

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT: Final = "sqlite:///trax.db"
VARIABLE: Final = "TRAX_DATABASE_URL"
MEMORY: Final = ":memory:"
IN_MEMORY: Final = "memory://"
KNOWN: Final = "use postgresql://user@host/database, sqlite:///file.db or memory://"


def chosen_url(given: str | None, environment: Mapping[str, str] | None = None) -> str:
    """The address given, else the environment's, else a file beside the program."""
    environment = os.environ if environment is None else environment
    return given or environment.get(VARIABLE) or DEFAULT


def parsed_url(address: str) -> URL:
    if address == IN_MEMORY:
        return URL.create("sqlite", database=MEMORY)
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise InvalidUrl(f"{mask_url(address)!r} is not a database URL; {KNOWN}") from None
    if "@" in (url.host or ""):
        raise InvalidUrl(
            f"{mask_url(address)!r} has more than one '@'; write one that belongs to the password as %40"
        )
    match url.get_backend_name():
        case "postgresql" | "postgres":
            return _postgresql(url)
        case "sqlite":
            return _sqlite(url)
        case other:
            raise InvalidUrl(f"Trax does not know the database {other!r}; {KNOWN}")


def _postgresql(url: URL) -> URL:
    if not url.database:
        raise InvalidUrl(f"{shown_url(url)!r} names no database; {KNOWN}")
    return url.set(drivername="postgresql+psycopg")


def _sqlite(url: URL) -> URL:
    if url.host:
        raise InvalidUrl(f"{shown_url(url)!r} has two slashes where three belong: sqlite:///{url.host}")
    return url.set(drivername="sqlite", database=url.database or MEMORY)


def is_in_memory(address: str) -> bool:
    """Whether the database lives in its one connection, and no other can reach it."""
    return parsed_url(address).database == MEMORY


def has_no_file_yet(address: str) -> bool:
    """Whether opening this SQLite database would make it: a question should not leave a file behind."""
    file = file_of(address)
    return file is not None and not file.exists()


def file_of(address: str) -> Path | None:
    """The file of this SQLite database; None when it has none, or one with conditions."""
    url = parsed_url(address)
    is_plain_file = url.drivername == "sqlite" and url.database != MEMORY and not url.query
    return Path(str(url.database)) if is_plain_file else None


def shown_url(url: URL) -> str:
    """The address without its passwords, as it may stand in a message."""
    if url.database == MEMORY:
        return IN_MEMORY
    return mask_url(url.render_as_string(hide_password=True)).replace("+psycopg", "")
