"""What changes are asked for with. A field that nobody knows is refused, so that no typo goes unnoticed."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from trax.web.api.paging import RowId

IDS_AT_MOST: Final = 1000
LONGEST_NOTE: Final = 2000

Note = Annotated[str, Field(min_length=1, max_length=LONGEST_NOTE)]
IdList = Annotated[list[RowId], Field(min_length=1, max_length=IDS_AT_MOST)]


class Body(BaseModel):
    """What every body has in common."""

    model_config = ConfigDict(extra="forbid")


class Ids(Body):
    """Which ones."""

    ids: IdList


class Chosen(Body):
    """Which dead letters: these, those of one kind of failure, or all that wait."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [way]} for way in ("ids", "fingerprint", "all")]}
    )

    ids: IdList | None = None
    fingerprint: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    all: Literal[True] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        said = [way for way in (self.ids, self.fingerprint, self.all) if way is not None]
        if len(said) != 1:
            raise PydanticCustomError("chosen", "say one of ids, fingerprint and all")
        return self
