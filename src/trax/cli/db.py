"""`trax db …`: the tables and their version."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from trax.store import Store
from trax.store.migrations import compared
from trax.store.migrations import migrate as bring_up_to_date
from trax.store.migrations import status as found_status
from trax.store.url import VARIABLE, chosen_url, has_no_file_yet

if TYPE_CHECKING:
    from trax.store.migrations import SchemaStatus

NEEDS_MIGRATION = 2

db = App(name="db", help="The tables and their version.")

DatabaseUrl = Annotated[
    str | None, Parameter(help=f"The database; else ${VARIABLE}, else sqlite:///trax.db.")
]


@db.command
def migrate(*, database_url: DatabaseUrl = None) -> None:
    """Bring the tables up to date. Safe to run on every deploy and on several servers at once."""
    store = Store(chosen_url(database_url))
    try:
        before = store.read(found_status)
        after = store.run(bring_up_to_date)
    finally:
        store.close()
    done = "already at" if before == after else f"migrated from {before.current or 'nothing'} to"
    print(f"{store.address}: {done} {after.current}")  # noqa: T201


@db.command
def status(
    *,
    database_url: DatabaseUrl = None,
    as_json: Annotated[bool, Parameter("--json", help="One JSON document.")] = False,
) -> int:
    """Say which version the tables have; exit with 0 if it is the one wanted, else with 2."""
    address = chosen_url(database_url)
    store = Store(address)
    try:
        found = compared(None) if has_no_file_yet(address) else store.read(found_status)
    finally:
        store.close()
    print(_document(store.address, found) if as_json else f"{store.address}: {_sentence(found)}")  # noqa: T201
    return 0 if found.state == "current" else NEEDS_MIGRATION


db.command("trax.cli.doctor:doctor", name="doctor")


def _document(address: str, found: SchemaStatus) -> str:
    return json.dumps(
        {"database": address, "state": found.state, "current": found.current, "wanted": found.wanted}
    )


def _sentence(found: SchemaStatus) -> str:
    match found.state:
        case "current":
            return f"current, at {found.current}"
        case "missing":
            return "no Trax tables yet; run `trax db migrate`"
        case "old":
            return f"at {found.current}, this version of Trax needs {found.wanted}; run `trax db migrate`"
        case "newer":
            return f"at {found.current}, newer than this version of Trax knows ({found.wanted}); upgrade Trax"
