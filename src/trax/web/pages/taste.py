"""Display preferences of a user, stored in a cookie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qsl

from trax.web.cookies import cookie
from trax.web.pages.spelled import parse_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

PREFERENCES_COOKIE: Final = "trax_taste"
BLOCKS: Final = ("tiles", "throughput", "states", "durations", "failing", "blocks")
"""The blocks of the home page."""
DEFAULT_PACE: Final = 3
SLOWEST_PACE: Final = 300
YEAR: Final = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Preferences:
    """Display preferences. `pace`: minimum seconds between two refreshes of a live page."""

    admin: bool = False
    pace: int = DEFAULT_PACE
    hidden: frozenset[str] = frozenset()

    @classmethod
    def of(cls, request: Request) -> Self:
        """Read the cookie; the query parameter `admin` takes precedence."""
        words = dict(parse_qsl(request.cookies.get(PREFERENCES_COOKIE, "")))
        admin = request.query_params.get("admin", words.get("admin", ""))
        return cls(
            admin=admin == "1",
            pace=_pace(words.get("pace", "")),
            hidden=frozenset(words.get("hidden", "").split(".")) & frozenset(BLOCKS),
        )

    @classmethod
    def from_form(cls, form: Mapping[str, str], shown: frozenset[str]) -> Self:
        return cls(
            admin=form.get("admin") == "1",
            pace=_pace(form.get("pace", "")),
            hidden=frozenset(BLOCKS) - shown,
        )

    def save(self, request: Request, response: Response) -> None:
        value = f"admin={int(self.admin)}&pace={self.pace}&hidden={'.'.join(sorted(self.hidden))}"
        response.headers.append("Set-Cookie", cookie(request, PREFERENCES_COOKIE, value, seconds=YEAR))


def _pace(text: str) -> int:
    pace = parse_whole(text)
    return DEFAULT_PACE if pace is None else min(max(pace, 1), SLOWEST_PACE)
