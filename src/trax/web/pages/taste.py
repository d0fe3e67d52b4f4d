"""What a viewer likes: kept in their browser, read with every page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qsl

from trax.web.cookies import cookie
from trax.web.pages.spelled import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

COOKIE: Final = "trax_taste"
BLOCKS: Final = ("tiles", "throughput", "states", "durations", "failing", "blocks")
"""What the first page shows."""
USUAL_PACE: Final = 3
SLOWEST_PACE: Final = 300
YEAR: Final = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Taste:
    """`pace`: how many seconds lie at least between two looks of a page that is live."""

    admin: bool = False
    pace: int = USUAL_PACE
    hidden: frozenset[str] = frozenset()

    @classmethod
    def of(cls, request: Request) -> Self:
        """As the browser remembers it; what the address says about administrative trains wins."""
        words = dict(parse_qsl(request.cookies.get(COOKIE, "")))
        asked = request.query_params.get("admin", words.get("admin", ""))
        return cls(
            admin=asked == "1",
            pace=_pace(words.get("pace", "")),
            hidden=frozenset(words.get("hidden", "").split(".")) & frozenset(BLOCKS),
        )

    @classmethod
    def chosen(cls, form: Mapping[str, str], shown: frozenset[str]) -> Self:
        return cls(
            admin=form.get("admin") == "1",
            pace=_pace(form.get("pace", "")),
            hidden=frozenset(BLOCKS) - shown,
        )

    def remember(self, request: Request, answer: Response) -> None:
        said = f"admin={int(self.admin)}&pace={self.pace}&hidden={'.'.join(sorted(self.hidden))}"
        answer.headers.append("Set-Cookie", cookie(request, COOKIE, said, seconds=YEAR))


def _pace(text: str) -> int:
    pace = whole(text)
    return USUAL_PACE if pace is None else min(max(pace, 1), SLOWEST_PACE)
