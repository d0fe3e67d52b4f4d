"""What a type checker must refuse in the lists of an app."""

from __future__ import annotations

from trax import Trax

app = Trax("memory://")


async def read() -> None:
    await app.executions.list(stat="failed")  # error: reportCallIssue
    await app.executions.list(since="yesterday")  # error: reportArgumentType
    await app.executions.page(before="7")  # error: reportArgumentType
    await app.executions.count(limit=50)  # error: reportCallIssue
    await app.manifests.list(after=7)  # error: reportArgumentType
    await app.groups.list(train="greet")  # error: reportCallIssue
    await app.sessions.count(user=7)  # error: reportArgumentType
