"""Form actions of pages: confirm, run the action, redirect with a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse

from trax.errors import StoreError, TraxError
from trax.web import sessions
from trax.web.context import current_url, request_form
from trax.web.pages.formats import parse_whole
from trax.web.pages.rendering import Message, set_message, show

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from trax.web.context import Form

YES: Final = "yes"


async def run_action(
    request: Request, action: Callable[[], Awaitable[Message]], *, question: str | None = None
) -> Response:
    """Run an action and redirect to the page with its message.

    With a question, the user must confirm first: in a dialog, or without scripts on a page of its own. An
    error is shown as a message on the same page: another operator may simply have been faster.
    """
    form = request_form(request)
    if question and form.get("confirmed") != YES:
        return _confirm_page(request, form, question)
    try:
        message = await action()
    except StoreError:
        raise
    except TraxError as error:
        message = Message(str(error), is_good=False)
    response = RedirectResponse(current_url(request), 303)
    set_message(request, response, message)
    return response


def row_ids(form: Form) -> list[int]:
    """The ids of the selected rows, where ids are numbers."""
    return [number for word in form.all("ids") if (number := parse_whole(word)) is not None]


def _confirm_page(request: Request, form: Form, question: str) -> Response:
    fields = [(name, value) for name, value in form.pairs if name != sessions.FIELD]
    token = [(sessions.FIELD, form.get(sessions.FIELD))]
    return show(request, "confirm.html", question=question, fields=token + fields, back=current_url(request))
