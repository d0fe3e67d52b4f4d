"""What a type checker must refuse of an app."""

from __future__ import annotations

from trax import Trax, junction

app = Trax("memory://")


@junction
def to_text(number: int) -> str:
    return str(number)


@app.train
async def greet(name: str) -> int:
    return len(name)


async def use() -> None:
    await app.run(greet, 5)  # error: reportArgumentType, reportCallIssue
    await app.queue(greet, 5)  # error: reportArgumentType
    await app.queue(greet, "Ada", prority=5)  # error: reportCallIssue
    await app.queue_many(greet, [5])  # error: reportArgumentType
    await app.queue_many(greet, ["Ada"], unique="key")  # error: reportCallIssue
    app.sync.run(greet, b"Ada")  # error: reportArgumentType, reportCallIssue
    app.sync.queue(greet, None)  # error: reportArgumentType
    text: str = await app.run(greet, "Ada")  # error: reportAssignmentType
    print(text)


app.train("number", to_text, timeot=5)  # error: reportCallIssue
app.train("number", str)  # error: reportArgumentType
