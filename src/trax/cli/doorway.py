"""Web options of commands (`--web`, `--port`, …) and the sign-in hint they print."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from trax.errors import StoreError
from trax.host.extras import import_extra

if TYPE_CHECKING:
    from trax.host.app import Trax
    from trax.web.serving import WebListener

LOOPBACK: Final = "127.0.0.1"
PORT_RANGE: Final = validators.Number(gte=0, lte=65535)
Port = Annotated[int, Parameter(validator=PORT_RANGE)]
WebPort = Annotated[
    int | None,
    Parameter("--web", help="Also serve the dashboard and the HTTP API on this port.", validator=PORT_RANGE),
]
WebHost = Annotated[
    str, Parameter(help="Address to listen on; other than loopback only if access is configured.")
]


InsecureLocal = Annotated[
    bool,
    Parameter(negative=(), help="Treat every local process as an operator, without signing in."),
]


def open_doorway(port: int, host: str, *, by: str, insecure_local: bool = False) -> WebListener:
    """Bind the port now, so that a port in use is an error before the server starts."""
    serving = import_extra("trax.web.serving", extra="web", feature=by)
    access = serving.Access.from_environment()
    return serving.Doorway(
        serving.Door(port, host), replace(access, insecure_local=True) if insecure_local else access
    )


async def sign_in_hint(doorway: WebListener, app: Trax) -> str | None:
    """How to sign in to the dashboard; None if access is configured."""
    if doorway.access.insecure_local:
        return f"every local process is an operator at {doorway.address} (--insecure-local)"
    try:
        link = await doorway.sign_in_link(app)
    except StoreError as error:
        return f"no sign-in link could be created: {error}; try `trax sessions link`"
    return None if link is None else f"sign in to the dashboard (once, within 1 h): {link}"
