"""`trax db …`: migrate and check the database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cyclopts import App

from trax.cli.operators import AsJson, DatabaseUrl  # noqa: TC001 - cyclopts reads them
from trax.cli.output import as_mapping, say, show_json
from trax.store.url import choose_url, has_no_file_yet

if TYPE_CHECKING:
    from trax.store.migrations import SchemaStatus

NEEDS_MIGRATION = 2

db = App(name="db", help="Migrate and check the database.")


@db.command
def migrate(*, database_url: DatabaseUrl = None) -> None:
    """Migrate the tables to this version of Trax. Safe on every deploy, and on several servers at once."""
    from trax.store import Store
    from trax.store.migrations import migrate as migrate_schema
    from trax.store.migrations import status as schema_status

    store = Store(choose_url(database_url))
    try:
        before = store.read(schema_status)
        after = store.run(migrate_schema)
    finally:
        store.close()
    done = "already at" if before == after else f"migrated from {before.current or 'nothing'} to"
    print(f"{store.address}: {done} {after.current}")  # noqa: T201


@db.command
def status(
    *,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> int:
    """Show the version of the tables; exit with 0 if it is current, otherwise with 2."""
    from trax.store import Store
    from trax.store.migrations import compare_revision
    from trax.store.migrations import status as schema_status

    address = choose_url(database_url)
    store = Store(address)
    try:
        found = compare_revision(None) if has_no_file_yet(address) else store.read(schema_status)
    finally:
        store.close()
    print(_document(store.address, found) if as_json else f"{store.address}: {_sentence(found)}")  # noqa: T201
    return 0 if found.state == "current" else NEEDS_MIGRATION


@db.command
def doctor(*, database_url: DatabaseUrl = None, as_json: AsJson = False) -> int:
    """Check the database: tables, clocks, vacuum, notifications, leftovers.

    Changes nothing. Exits with 1 if there is a problem; each problem says what to do.
    """
    from trax.inspect.doctor import load_findings

    findings = load_findings(choose_url(database_url))
    is_wrong = any(finding.is_wrong for finding in findings)
    if as_json:
        show_json({"findings": [{**as_mapping(each), "is_wrong": each.is_wrong} for each in findings]})
        return 1 if is_wrong else 0
    for finding in findings:
        say(f"WRONG  {finding.text}\n       {finding.fix}" if finding.is_wrong else f"ok     {finding.text}")
    return 1 if is_wrong else 0


def _document(address: str, schema: SchemaStatus) -> str:
    return json.dumps(
        {"database": address, "state": schema.state, "current": schema.current, "wanted": schema.wanted}
    )


def _sentence(schema: SchemaStatus) -> str:
    match schema.state:
        case "current":
            return f"current, at version {schema.current}"
        case "missing":
            return "no Trax tables yet; run `trax db migrate`"
        case "old":
            return f"at version {schema.current}, this Trax needs {schema.wanted}; run `trax db migrate`"
        case "newer":
            return f"at version {schema.current}, newer than this Trax knows ({schema.wanted}); upgrade Trax"
