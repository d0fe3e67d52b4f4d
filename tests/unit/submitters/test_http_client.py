"""The URL of HTTP workers: messages and errors reveal no password."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta

import httpx2
import pytest

from trax.errors import DefinitionError
from trax.remote.http.client import CallRetry, EndpointClient
from trax.remote.http.workers import HttpWorkers

SECRET = "0123456789abcdef"


def test_the_password_in_the_url_of_http_workers_is_never_shown() -> None:
    workers = HttpWorkers("https://ci:hunter2@example.com/trax", SECRET)

    assert repr(workers) == "HttpWorkers('https://ci:***@example.com/trax', name='http', mode='database')"


async def test_credentials_are_sent_as_a_header_and_removed_from_the_url() -> None:
    heard: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        heard.append(request)
        return httpx2.Response(200)

    far = EndpointClient(
        url="https://ci:hunter%402@example.com/trax",
        key="default",
        secret=SECRET.encode(),
        timeout=timedelta(seconds=1),
        retry=CallRetry(),
        options={"transport": httpx2.MockTransport(answer)},
    )

    await far.post("offer", b"{}")

    assert str(heard[0].url) == "https://example.com/trax/offer"
    assert heard[0].headers["authorization"] == "Basic " + b64encode(b"ci:hunter@2").decode()
    assert "hunter" not in repr(far)


def test_a_url_that_is_refused_shows_no_token() -> None:
    with pytest.raises(DefinitionError) as refused:
        HttpWorkers("https://ci:hunter2@example.com/trax?token=hunter2", SECRET)

    assert "hunter2" not in str(refused.value)
