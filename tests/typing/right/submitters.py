"""What a type checker must accept of submitters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax import Refused, Submission, Submitter, Trax
from trax.remote.inline import Inline

if TYPE_CHECKING:
    from collections.abc import Sequence


class Mailbox:
    name = "mailbox"

    async def submit(self, batch: Sequence[Submission]) -> list[Refused | None]:
        return [None for _ in batch]


class Blocking:
    def __init__(self, name: str) -> None:
        self.name = name

    def submit(self, runs: Sequence[Submission]) -> None:
        print(self.name, [run.metadata_id for run in runs])


app = Trax("memory://", submitter=Mailbox())


@app.train(submitter="blocking")
async def greet(name: str) -> int:
    return len(name)


def chosen() -> Submitter:
    return Blocking("blocking")


app.submitters.add(chosen())
app.submitters.default = Inline(app)
app.route(greet, to=Blocking("other"))
app.route(greet, to="local")


async def other_end() -> bool:
    async with app.receiver() as receiver:
        return await receiver.claim_by_id(7)
