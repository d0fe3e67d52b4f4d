"""The list of mutations: guards of the code, each taken out, and the tests that must fail without it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
LISTS = sorted(Path(__file__).parent.glob("*.toml"))


class StaleMutation(Exception):
    """An entry of the list does not fit the code any more: correct the entry, or delete it with its guard."""


class Mutation(BaseModel, frozen=True, extra="forbid"):
    """One change of the code that breaks a promise."""

    name: str
    """What the guard does."""
    promise: int
    """The number of the promise that is broken without it, as in `docs/explanation/guarantees.md`."""
    file: str
    """The path of the file below the root."""
    old: str
    """A text with the guard, which occurs once in the file."""
    new: str
    """The text without it."""
    tests: tuple[str, ...]
    """The ids of the tests that must fail; without parameters in brackets, one of the cases must fail."""

    def change(self, text: str) -> str:
        """Return the text of the file with the mutation; raise if the old text is not there exactly once."""
        found = text.count(self.old)
        if found != 1:
            raise StaleMutation(f"{self.name!r}: the old text occurs {found} times in {self.file}, not once")
        return text.replace(self.old, self.new)

    def has_word(self, words: Sequence[str]) -> bool:
        """Whether one of the words occurs in its name, file or tests; without words, always."""
        text = " ".join((self.name, self.file, *self.tests))
        return not words or any(word in text for word in words)


class MutationList(BaseModel, extra="forbid"):
    """One of the lists."""

    mutation: list[Mutation]


def load_mutations() -> list[Mutation]:
    tables = [tomllib.loads(file.read_text(encoding="utf-8")) for file in LISTS]
    return [mutation for table in tables for mutation in MutationList.model_validate(table).mutation]
