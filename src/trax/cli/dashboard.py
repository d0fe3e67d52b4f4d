"""`trax dashboard`: the control room of a database, whoever runs its jobs."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from trax.cli.doorway import LOOPBACK, InsecureLocal, Port, WebHost, entrance, opened
from trax.cli.loading import VARIABLE, load_app
from trax.cli.operating import DatabaseUrl, bare_app, misuse
from trax.cli.showing import say
from trax.host.extras import needed
from trax.host.signals import StopSignals

if TYPE_CHECKING:
    from trax.host.app import Trax
    from trax.web.serving import Doorway

AppName = Annotated[
    str | None, Parameter(help="module:app or file.py:app, to run trains by hand; else $TRAX_APP, or none.")
]
HashPassword = Annotated[
    bool, Parameter(negative=(), help="Ask for a password, print what to configure for it, and end.")
]


def dashboard(
    app: AppName = None,
    /,
    *,
    port: Port = 8080,
    host: WebHost = LOOPBACK,
    database_url: DatabaseUrl = None,
    insecure_local: InsecureLocal = False,
    hash_password: HashPassword = False,
) -> None:
    """Serve the dashboard and the API of a database until Ctrl-C or SIGTERM; no job runs here.

    The database is enough to look and to operate. With the app's code, trains can be run from a form.
    """
    if hash_password:
        say(_password_hash())
        return
    shown = _app(app, database_url)
    try:
        asyncio.run(_serve(shown, opened(port, host, by="trax dashboard", insecure_local=insecure_local)))
    finally:
        shown.close()


def _app(name: str | None, database_url: str | None) -> Trax:
    if name is not None and database_url is not None:
        raise misuse("Say either APP or --database-url: an app has its own database.", "dashboard")
    if name is None and (database_url is not None or not os.environ.get(VARIABLE)):
        return bare_app(database_url)
    return load_app(name)


async def _serve(app: Trax, doorway: Doorway) -> None:
    await app.parts.store.opened()  # a database that cannot be used is better said now than on a page
    with StopSignals() as signals:
        async with app.stats.kept_up(), doorway.served(app) as address:
            say(f"the dashboard of {app.parts.store.shown_address} is on {address}; Ctrl-C stops")
            if (way_in := await entrance(doorway, app)) is not None:
                say(way_in)
            await signals.asked.wait()


def _password_hash() -> str:
    asked = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not asked:
        raise misuse("An empty password opens nothing.", "dashboard")
    return needed("trax.web.passwords", extra="web", by="trax dashboard").hashed(asked)
