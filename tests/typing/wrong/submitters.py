"""What a type checker must refuse of submitters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax import Submission, Trax

if TYPE_CHECKING:
    from collections.abc import Sequence


class Nameless:
    async def submit(self, batch: Sequence[Submission]) -> None: ...


class Chatty:
    name = "chatty"

    async def submit(self, batch: Sequence[Submission]) -> list[str]:
        return [run.external_id for run in batch]


app = Trax("memory://", submitter=Nameless())  # error: reportArgumentType


@app.train
async def greet(name: str) -> int:
    return len(name)


app.route(greet, to=Chatty())  # error: reportArgumentType
app.route("greet", to="local")  # error: reportArgumentType
