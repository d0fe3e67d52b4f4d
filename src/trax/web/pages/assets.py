"""Static files, each with a URL that changes with its content."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.staticfiles import StaticFiles

from trax.web.room import link

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Scope

STATIC: Final = Path(__file__).parent.parent / "static"
IMMUTABLE: Final = "public, max-age=31536000, immutable"


class Assets(StaticFiles):
    """Serves static files. Versioned URLs are immutable; others must be revalidated."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)

    def file_response(
        self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        is_versioned = scope.get("query_string", b"").startswith(b"v=")
        response.headers["Cache-Control"] = IMMUTABLE if is_versioned else "no-cache"
        return response


def asset(request: Request, name: str) -> str:
    """The versioned URL of a static file; browsers may cache it forever."""
    return link(request, f"/static/{name}", v=_version(name))


@cache
def _version(name: str) -> str:
    return sha256((STATIC / name).read_bytes()).hexdigest()[:12]
