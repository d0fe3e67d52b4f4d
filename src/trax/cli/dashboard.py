"""`trax dashboard`: serve the dashboard and the HTTP API of a database."""

from __future__ import annotations

import asyncio
import getpass
import os
import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from trax.cli.operators import DatabaseUrl, bare_app, usage_error
from trax.cli.options import LOOPBACK, InsecureLocal, Port, WebHost
from trax.cli.output import say
from trax.errors import import_extra

if TYPE_CHECKING:
    from trax.app.app import Trax
    from trax.web.serve import WebListener

AppName = Annotated[
    str | None,
    Parameter(help="module:app or file.py:app, to run trains from a form; default: $TRAX_APP, or none."),
]
HashPassword = Annotated[
    bool, Parameter(negative=(), help="Read a password, print the hash to configure, and exit.")
]

CreateToken = Annotated[
    bool,
    Parameter(negative=(), help="Print a new token for a program, and the hash to configure, and exit."),
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
    create_token: CreateToken = False,
) -> None:
    """Serve the dashboard and the HTTP API of a database until Ctrl-C or SIGTERM; run no job.

    Only the database is needed. With APP, trains can also be run from a form.
    """
    if hash_password:
        say(_password_hash())
        return
    if create_token:
        _create_token()
        return
    from trax.cli.serve import open_web_listener

    loaded = _app(app, database_url)
    try:
        web = open_web_listener(port, host, by="trax dashboard", insecure_local=insecure_local)
        asyncio.run(_serve(loaded, web))
    finally:
        loaded.close()


def _app(name: str | None, database_url: str | None) -> Trax:
    from trax.cli.loading import APP_VARIABLE, load_app

    if name is not None and database_url is not None:
        raise usage_error("Give either APP or --database-url: an app has its own database.", "dashboard")
    if name is None and (database_url is not None or not os.environ.get(APP_VARIABLE)):
        return bare_app(database_url)
    return load_app(name)


async def _serve(app: Trax, web: WebListener) -> None:
    from trax.cli.serve import sign_in_hint
    from trax.worker.loop import StopSignals, freeze_loaded_objects

    await app.context.store.open()  # fail now, not on a page, if the database cannot be used
    freeze_loaded_objects()
    with StopSignals() as signals:
        async with app.stats.keep_up_in_background(), web.serve(app) as address:
            say(f"dashboard of {app.context.store.display_address} on {address}; Ctrl-C stops")
            if (hint := await sign_in_hint(web, app)) is not None:
                say(hint)
            await signals.stop_requested.wait()


def _password_hash() -> str:
    access = _access()
    password = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    access.check_password(password)
    if sys.stdin.isatty() and getpass.getpass("Again: ") != password:
        raise usage_error("The passwords differ.", "dashboard")
    return access.hash_password(password)


def _create_token() -> None:
    secret = secrets.token_urlsafe(32)
    say(f"for the program, shown only now: {secret}")
    say(f"for the configuration: {_access().hash_token(secret)}")


def _access() -> Any:
    return import_extra("trax.web.access", extra="web", feature="trax dashboard")
