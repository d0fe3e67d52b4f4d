"""`trax db doctor`: how well the database is."""

from __future__ import annotations

from trax.cli.operating import AsJson, DatabaseUrl  # noqa: TC001 - cyclopts reads them
from trax.cli.showing import as_mapping, say, show_json
from trax.host.doctor import examined
from trax.store.url import chosen_url


def doctor(*, database_url: DatabaseUrl = None, as_json: AsJson = False) -> int:
    """Examine the database: tables, clocks, vacuum, notifications, what was left behind.

    Nothing is changed. Exits with 1 if something is wrong; each such line says what to do.
    """
    findings = examined(chosen_url(database_url))
    is_wrong = any(one.is_wrong for one in findings)
    if as_json:
        show_json({"findings": [{**as_mapping(one), "is_wrong": one.is_wrong} for one in findings]})
        return 1 if is_wrong else 0
    for one in findings:
        say(f"WRONG  {one.text}\n       {one.fix}" if one.is_wrong else f"ok     {one.text}")
    return 1 if is_wrong else 0
