"""`trax lint`: what is wrong with an app, without a database."""

from __future__ import annotations

from trax.cli.loading import load_app
from trax.cli.operating import AsJson  # noqa: TC001 - cyclopts reads it
from trax.cli.serving import AppName  # noqa: TC001
from trax.cli.showing import say, show_json
from trax.clock import utc_now
from trax.host.linting import lint as linted


def lint(app: AppName = None, /, *, as_json: AsJson = False) -> int:
    """Check an app without a database; exit with 1 if there is anything to look at.

    Loading it checks its routes, names and inputs already. This adds what makes no sense as a whole, a line
    each.
    """
    found = linted(load_app(app).parts, now=utc_now())
    if as_json:
        show_json({"problems": found})
        return 1 if found else 0
    for line in found or ["nothing to complain about"]:
        say(line)
    return 1 if found else 0
