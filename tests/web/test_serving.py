"""The server of the control room, on a socket of its own."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import httpx2
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from trax import Trax
from trax.web import Access
from trax.web.serving import Door, Doorway

if TYPE_CHECKING:
    from asyncio import Transport

    import pytest


async def test_no_answer_waits_for_a_word_about_its_first_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    protocol: Any = AutoHTTPProtocol
    connected, delayed = protocol.connection_made, list[bool]()

    def note(self: Any, transport: Transport) -> None:
        served: socket.socket = transport.get_extra_info("socket")
        delayed.append(not served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        connected(self, transport)

    monkeypatch.setattr(protocol, "connection_made", note)
    app = Trax("memory://")
    doorway = Doorway(Door(port=0), Access(insecure_local=True))
    async with doorway.served(app) as address, httpx2.AsyncClient() as client:
        answers = [await client.get(f"{address}{path}") for path in ("/", "/health")]
    app.close()

    assert [answer.status_code for answer in answers] == [200, 200]
    assert delayed
    assert not any(delayed)
