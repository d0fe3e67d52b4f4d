"""The door to the control room of a process that runs, as commands are told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from trax.host.extras import needed

if TYPE_CHECKING:
    from trax.web.serving import Doorway

LOOPBACK: Final = "127.0.0.1"
A_PORT: Final = validators.Number(gte=0, lte=65535)
Port = Annotated[int, Parameter(validator=A_PORT)]
WebPort = Annotated[
    int | None,
    Parameter("--web", help="Serve the dashboard and the API on this port, too.", validator=A_PORT),
]
WebHost = Annotated[str, Parameter(help="Where to listen; beyond this machine only with access configured.")]


def opened(port: int, host: str, *, by: str) -> Doorway:
    """Open it at once, so that a port that is taken is said before anything begins."""
    serving = needed("trax.web.serving", extra="web", by=by)
    return serving.Doorway(serving.Door(port, host))
