"""Settings and options that a type checker must refuse."""

from __future__ import annotations

from trax import Trax

app = Trax("memory://", max_active_job=5)  # error: reportCallIssue
Trax("memory://", max_active_jobs="many")  # error: reportArgumentType
Trax("memory://", failure_counting="sometimes")  # error: reportArgumentType
app.web(titel="Trax")  # error: reportCallIssue
app.web(title=5)  # error: reportArgumentType
app.web().openapi()  # error: reportAttributeAccessIssue, reportUnknownMemberType
app.http_endpoint("0123456789abcdef", body_timeout=5)  # error: reportArgumentType
app.http_endpoint(5)  # error: reportArgumentType


async def change() -> None:
    await app.settings.update(max_active_jbs=50)  # error: reportCallIssue
