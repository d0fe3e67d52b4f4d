"""Declare many manifests at once: one train, shared options, one input each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from trax.errors import DefinitionError, format_value
from trax.schedule.declaration import Item
from trax.schedule.declare import build_declaration
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
"""Inputs by id, or `Item` values, which can also name the manifest they depend on."""

ConfigureEach: TypeAlias = Callable[[Item[In]], ScheduleKeywords | None]
"""Returns options for one item of a batch; they override those of the batch."""


@dataclass(frozen=True, slots=True)
class Batch(Generic[In]):
    """What the manifests of a batch share. `name` is the prefix of their external ids and owns them."""

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

    def build_declarations(
        self, items: Items[In], occasion_of: Callable[[Item[In]], Occasion], codec: Encoder
    ) -> list[tuple[Declaration, ScheduleOptions]]:
        """One declaration for each item, with its options."""
        listed = self._list_items(items)
        shared = options_of(self.place, self.keywords)
        group = self.name or (self._id_of(listed[0]) if listed else None)
        declarations: list[tuple[Declaration, ScheduleOptions]] = []
        for item in listed:
            options = self._item_options(item) if self.configure_each else shared
            declaration = build_declaration(
                self.train,
                self._id_of(item),
                item.input,
                occasion_of(item),
                options,
                codec=codec,
                group=group,
                batch=self.name,
            )
            declarations.append((declaration, options))
        return declarations

    def _list_items(self, items: Any) -> list[Item[In]]:
        if isinstance(items, Mapping):
            return [Item(key, value) for key, value in cast("Mapping[Any, In]", items).items()]
        listed = list(cast("Iterable[Any]", items)) if isinstance(items, Iterable) else [items]
        for each in listed:
            if not isinstance(each, Item):
                raise DefinitionError(
                    f"{self.place} needs a mapping from ids to inputs, or an Item(id, input) for each "
                    f"(got {format_value(each)})"
                )
        return listed

    def _id_of(self, item: Item[In]) -> str:
        return str(item.id) if self.name is None else f"{self.name}-{item.id}"

    def _item_options(self, item: Item[In]) -> ScheduleOptions:
        own = self.configure_each(item) if self.configure_each else None
        return options_of(f"manifest {self._id_of(item)!r}", {**self.keywords, **(own or {})})
