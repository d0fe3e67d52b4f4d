"""Parse, validate and display database URLs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from trax.errors import InvalidUrl, format_value
from trax.masking import mask_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import URL

DEFAULT: Final = "sqlite:///trax.db"
URL_VARIABLE: Final = "TRAX_DATABASE_URL"
MEMORY: Final = ":memory:"
IN_MEMORY: Final = "memory://"
EXPECTED_FORMS: Final = "use postgresql://user@host/database, sqlite:///file.db or memory://"


def choose_url(address: str | None, environment: Mapping[str, str] | None = None) -> str:
    """Return the given URL, else $TRAX_DATABASE_URL, else sqlite:///trax.db."""
    environment = os.environ if environment is None else environment
    if address is not None and not isinstance(cast("Any", address), str):
        raise InvalidUrl(f"{format_value(address)} is not a database URL; {EXPECTED_FORMS}")
    return address or environment.get(URL_VARIABLE) or DEFAULT


def parse_url(address: str) -> URL:
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    if address == IN_MEMORY:
        return URL.create("sqlite", database=MEMORY)
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise InvalidUrl(f"{mask_url(address)!r} is not a database URL; {EXPECTED_FORMS}") from None
    if "@" in (url.host or ""):
        raise InvalidUrl(f"{mask_url(address)!r} has more than one '@'; write an '@' in the password as %40")
    match url.get_backend_name():
        case "postgresql" | "postgres":
            return _postgresql(url)
        case "sqlite":
            return _sqlite(url)
        case other:
            raise InvalidUrl(f"unsupported database {other!r}; {EXPECTED_FORMS}")


def _postgresql(url: URL) -> URL:
    if not url.database:
        raise InvalidUrl(f"{display_url(url)!r} has no database name; {EXPECTED_FORMS}")
    return url.set(drivername="postgresql+psycopg")


def _sqlite(url: URL) -> URL:
    if url.host:
        file = url.host if url.database is None else f"{url.host}/{url.database}"
        raise InvalidUrl(
            f"{display_url(url)!r} needs three slashes: sqlite:///{file} (four for an absolute path)"
        )
    return url.set(drivername="sqlite", database=url.database or MEMORY)


def is_in_memory(address: str) -> bool:
    """Whether the database exists only in one connection of this process."""
    return parse_url(address).database == MEMORY


def has_no_file_yet(address: str) -> bool:
    """Whether opening this SQLite database would create its file; commands that only read avoid that."""
    file = file_of(address)
    try:
        return file is not None and not file.exists()
    except OSError as error:  # its name is too long, or its folder cannot be read
        raise InvalidUrl(f"file {format_value(str(file))} cannot be read ({error.strerror})") from None


def file_of(address: str) -> Path | None:
    """Return the file of a SQLite database; None for another database, or if the URL has options."""
    url = parse_url(address)
    is_plain_file = url.drivername == "sqlite" and url.database != MEMORY and not url.query
    return Path(str(url.database)) if is_plain_file else None


def display_url(url: URL) -> str:
    """Return the URL without passwords, for messages."""
    if url.database == MEMORY:
        return IN_MEMORY
    return mask_url(url.render_as_string(hide_password=True)).replace("+psycopg", "")
