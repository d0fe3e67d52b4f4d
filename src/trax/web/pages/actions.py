"""Form actions of pages: read the form, confirm, run the action, redirect with a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.responses import RedirectResponse

from trax.engine.actor import acting
from trax.errors import StoreError, TraxError
from trax.records.audit import Actor, Via
from trax.web import sessions
from trax.web.context import current_url, visitor_of
from trax.web.pages.formats import parse_whole
from trax.web.pages.rendering import Message, set_message, show
from trax.web.problems import Refusal, problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from starlette.requests import Request
    from starlette.responses import Response

MAX_FIELDS: Final = 5000
YES: Final = "yes"


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a submitted form, in order."""

    pairs: tuple[tuple[str, str], ...]

    def get(self, name: str, default: str = "") -> str:
        """The last value of a field."""
        return next((value.strip() for key, value in reversed(self.pairs) if key == name), default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]

    @property
    def ids(self) -> list[int]:
        """The ids of the selected rows, where ids are numbers."""
        return [number for word in self.all("ids") if (number := parse_whole(word)) is not None]


async def read_form(request: Request) -> Form:
    body = (await request.body()).decode(errors="replace")
    try:
        return Form(tuple(parse_qsl(body, keep_blank_values=True, max_num_fields=MAX_FIELDS)))
    except ValueError:
        raise Refusal(problem(413, f"the form has more than {MAX_FIELDS} fields")) from None


async def run_action(
    request: Request,
    form: Form,
    action: Callable[[], Awaitable[Message]],
    *,
    question: str | None = None,
) -> Response:
    """Run an action in the user's name and redirect to the page with its message.

    With a question, the user must confirm first: in a dialog, or without scripts on a page of its own. An
    error is shown as a message on the same page: another operator may simply have been faster.
    """
    if question and form.get("confirmed") != YES:
        return _confirm_page(request, form, question)
    try:
        with audit_as_visitor(request, form):
            message = await action()
    except StoreError:
        raise
    except TraxError as error:
        message = Message(str(error), is_good=False)
    response = RedirectResponse(current_url(request), 303)
    set_message(request, response, message)
    return response


def audit_as_visitor(request: Request, form: Form) -> AbstractContextManager[None]:
    """Changes in this block are audited under the user's name, with the reason from the form."""
    return acting(Actor(visitor_of(request).name, Via.DASHBOARD), reason=form.get("reason") or None)


def _confirm_page(request: Request, form: Form, question: str) -> Response:
    fields = [(name, value) for name, value in form.pairs if name != sessions.FIELD]
    token = [(sessions.FIELD, form.get(sessions.FIELD))]
    return show(request, "confirm.html", question=question, fields=token + fields, back=current_url(request))
