"""Many declarations at once: one train, one set of options, an input for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from trax.errors import DefinitionError, shown
from trax.schedule.declaration import Item
from trax.schedule.declare import declared
from trax.schedule.options import ScheduleKeywords, options_of
from trax.train import Train
from trax.train.names import check_name

if TYPE_CHECKING:
    from trax.schedule.declaration import Declaration
    from trax.schedule.declare import Encoder
    from trax.schedule.occasion import Occasion
    from trax.schedule.options import ScheduleOptions

In = TypeVar("In")

Items: TypeAlias = Mapping[str, In] | Mapping[int, In] | Iterable[Item[In]]
"""Inputs by id, or items, which can also say what they depend on."""

ConfigureEach: TypeAlias = Callable[[Item[In]], ScheduleKeywords | None]
"""Options for one item of a batch; they have the last word over those of the batch."""


@dataclass(frozen=True, slots=True)
class Batch(Generic[In]):
    """What the manifests of a batch have in common. A name stands before their ids, and owns them."""

    train: Train[In, Any]
    name: str | None
    keywords: ScheduleKeywords
    configure_each: ConfigureEach[In] | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name, "a batch's name")

    @property
    def place(self) -> str:
        return "a batch" if self.name is None else f"batch {self.name!r}"

    def declared(
        self, items: Items[In], occasion_of: Callable[[Item[In]], Occasion], codec: Encoder
    ) -> list[tuple[Declaration, ScheduleOptions]]:
        """Each item as a declaration, with the options it was made by."""
        listed = self._listed(items)
        shared = options_of(self.place, self.keywords)
        group = self.name or (self._id_of(listed[0]) if listed else None)
        made: list[tuple[Declaration, ScheduleOptions]] = []
        for item in listed:
            options = self._configured(item) if self.configure_each else shared
            one = declared(
                self.train,
                self._id_of(item),
                item.input,
                occasion_of(item),
                options,
                codec=codec,
                group=group,
                batch=self.name,
            )
            made.append((one, options))
        return made

    def _listed(self, items: Any) -> list[Item[In]]:
        if isinstance(items, Mapping):
            return [Item(key, value) for key, value in cast("Mapping[Any, In]", items).items()]
        listed = list(cast("Iterable[Any]", items)) if isinstance(items, Iterable) else [items]
        for each in listed:
            if not isinstance(each, Item):
                raise DefinitionError(
                    f"{self.place} needs a mapping from ids to inputs, or an Item(id, input) for each "
                    f"(got {shown(each)})"
                )
        return listed

    def _id_of(self, item: Item[In]) -> str:
        return str(item.id) if self.name is None else f"{self.name}-{item.id}"

    def _configured(self, item: Item[In]) -> ScheduleOptions:
        own = self.configure_each(item) if self.configure_each else None
        return options_of(f"manifest {self._id_of(item)!r}", {**self.keywords, **(own or {})})
