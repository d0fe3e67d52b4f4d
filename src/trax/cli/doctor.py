"""`trax db doctor`: check the database for problems."""

from __future__ import annotations

from trax.cli.operating import AsJson, DatabaseUrl  # noqa: TC001 - cyclopts reads them
from trax.cli.showing import as_mapping, say, show_json
from trax.host.doctor import examine
from trax.store.url import choose_url


def doctor(*, database_url: DatabaseUrl = None, as_json: AsJson = False) -> int:
    """Check the database: tables, clocks, vacuum, notifications, leftovers.

    Changes nothing. Exits with 1 if there is a problem; each problem says what to do.
    """
    findings = examine(choose_url(database_url))
    is_wrong = any(finding.is_wrong for finding in findings)
    if as_json:
        show_json({"findings": [{**as_mapping(each), "is_wrong": each.is_wrong} for each in findings]})
        return 1 if is_wrong else 0
    for finding in findings:
        say(f"WRONG  {finding.text}\n       {finding.fix}" if finding.is_wrong else f"ok     {finding.text}")
    return 1 if is_wrong else 0
