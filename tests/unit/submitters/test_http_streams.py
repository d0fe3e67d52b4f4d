"""A stream of a run for a caller that reads too slowly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from trax.remote.http import requests
from trax.remote.http.requests import EndpointRequest, RunStream
from trax.remote.http.signing import ResponseKey

if TYPE_CHECKING:
    import pytest


async def test_the_last_dropped_progress_is_sent_with_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[bytes] = []

    async def send(message: Any) -> None:
        heard.append(message.get("body", b""))

    async def work() -> bytes:
        for fraction in (0.5, 0.75):
            telling.progress(fraction, None)
            telling.put_event("log", "a line")
        return b"the end"

    monkeypatch.setattr(requests, "MOST_LINES", 0)
    key = ResponseKey(b"0123456789abcdef", "abc")
    telling = RunStream(EndpointRequest({}, asyncio.Event().wait, send, key))

    await telling.stream(work())

    first, last = b"".join(heard).splitlines()
    assert key.line_text(1, first) == b'{"progress":[0.75,null]}'
    assert key.line_text(2, last) == b"the end"
