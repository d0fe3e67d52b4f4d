"""The door to the control room of a process that runs, as commands are told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from trax.errors import StoreError
from trax.host.extras import needed

if TYPE_CHECKING:
    from trax.host.app import Trax
    from trax.web.serving import Doorway

LOOPBACK: Final = "127.0.0.1"
A_PORT: Final = validators.Number(gte=0, lte=65535)
Port = Annotated[int, Parameter(validator=A_PORT)]
WebPort = Annotated[
    int | None,
    Parameter("--web", help="Serve the dashboard and the API on this port, too.", validator=A_PORT),
]
WebHost = Annotated[str, Parameter(help="Where to listen; beyond this machine only with access configured.")]


InsecureLocal = Annotated[
    bool,
    Parameter(negative=(), help="Let every process of this machine in as an operator, without a link."),
]


def opened(port: int, host: str, *, by: str, insecure_local: bool = False) -> Doorway:
    """Open it at once, so that a port that is taken is said before anything begins."""
    serving = needed("trax.web.serving", extra="web", by=by)
    access = serving.Access.from_environment()
    return serving.Doorway(
        serving.Door(port, host), replace(access, insecure_local=True) if insecure_local else access
    )


async def entrance(doorway: Doorway, app: Trax) -> str | None:
    """What whoever starts a server is told about getting in; None where access is configured."""
    if doorway.access.insecure_local:
        return f"every process of this machine is an operator at {doorway.address} (--insecure-local)"
    try:
        link = await doorway.sign_in_link(app)
    except StoreError as error:
        return f"no sign-in link could be made: {error}; `trax sessions link` tries again"
    return None if link is None else f"open the dashboard, once and within an hour, with {link}"
