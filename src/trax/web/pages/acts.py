"""What somebody does on a page: a form is sent, something happens, and the page that follows says what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.responses import RedirectResponse

from trax.errors import StoreError, TraxError
from trax.host.acting import acting
from trax.records.audit import Actor, Via
from trax.web import csrf
from trax.web.pages.messages import Message, say
from trax.web.pages.rendering import show
from trax.web.pages.spelled import whole
from trax.web.problems import Refusal, problem
from trax.web.room import here, visitor_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from starlette.requests import Request
    from starlette.responses import Response

MOST_FIELDS: Final = 5000
YES: Final = "yes"


@dataclass(frozen=True, slots=True)
class Form:
    """What was sent, in the order it was sent."""

    pairs: tuple[tuple[str, str], ...]

    def get(self, name: str, otherwise: str = "") -> str:
        """What was said under this name, the last word if there are several."""
        return next((value.strip() for key, value in reversed(self.pairs) if key == name), otherwise)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]

    @property
    def ids(self) -> list[int]:
        """The rows that were chosen, where rows have numbers."""
        return [number for word in self.all("ids") if (number := whole(word)) is not None]


async def posted(request: Request) -> Form:
    body = (await request.body()).decode(errors="replace")
    try:
        return Form(tuple(parse_qsl(body, keep_blank_values=True, max_num_fields=MOST_FIELDS)))
    except ValueError:
        raise Refusal(problem(413, f"a form may have {MOST_FIELDS} fields")) from None


async def act(
    request: Request,
    form: Form,
    deed: Callable[[], Awaitable[Message]],
    *,
    question: str | None = None,
) -> Response:
    """Do it in the visitor's name, and show the page again with what came of it.

    With a question, it is asked first: by a dialog of the page, or, without scripts, by a page of its own.
    What was refused is said where it was asked for: somebody else may simply have been quicker.
    """
    if question and form.get("confirmed") != YES:
        return _asked(request, form, question)
    try:
        with in_name_of_visitor(request, form):
            message = await deed()
    except StoreError:
        raise
    except TraxError as refused:
        message = Message(str(refused), is_good=False)
    answer = RedirectResponse(here(request), 303)
    say(request, answer, message)
    return answer


def in_name_of_visitor(request: Request, form: Form) -> AbstractContextManager[None]:
    """What is changed within is in the audit under their name, with the reason they gave."""
    return acting(Actor(visitor_of(request).name, Via.DASHBOARD), reason=form.get("reason") or None)


def _asked(request: Request, form: Form, question: str) -> Response:
    kept = [(name, value) for name, value in form.pairs if name != csrf.FIELD]
    token = [(csrf.FIELD, form.get(csrf.FIELD))]
    return show(request, "confirm.html", question=question, fields=token + kept, back=here(request))
