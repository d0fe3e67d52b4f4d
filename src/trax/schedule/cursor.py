"""Declaring in a chain: each call says what the next one may depend on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from trax.errors import DefinitionError
from trax.schedule.batch import Batch
from trax.schedule.declare import check_train, declared
from trax.schedule.ledger import Ledger
from trax.schedule.occasion import After, Once, occasion_of
from trax.schedule.options import options_of
from trax.schedule.requirement import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from trax.schedule.batch import ConfigureEach, Items
    from trax.schedule.declaration import Item
    from trax.schedule.occasion import Occasion, When
    from trax.schedule.options import ScheduleKeywords
    from trax.train import Train

In = TypeVar("In")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a chain: `root` is what `include` depends on, `last` what `then_include` depends on.

    A cursor never changes: every call gives the next one, so a chain can branch.
    """

    ledger: Ledger
    root: str | None = None
    last: str | None = None

    def schedule(
        self,
        train: Train[In, Any],
        external_id: str,
        input: In,  # noqa: A002 - the word for it everywhere else
        when: When,
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train by a schedule. It is the root of what is included next."""
        occasion = occasion_of(f"manifest {external_id!r}", when)
        self._declare(train, external_id, input, occasion, options)
        return Cursor(self.ledger, root=external_id, last=external_id)

    def include(
        self,
        train: Train[In, Any],
        external_id: str,
        input: In,  # noqa: A002
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train whenever the root of this chain has succeeded."""
        if self.root is None:
            raise DefinitionError(
                f"include {external_id!r} has no root to depend on: it must follow schedule(…) in one chain; "
                f"after schedule_many or schedule_once use include_many with Item(…, depends_on=…)"
            )
        self._declare(train, external_id, input, After(self.root), options)
        return replace(self, last=external_id)

    def then_include(
        self,
        train: Train[In, Any],
        external_id: str,
        input: In,  # noqa: A002
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train whenever the manifest just before it in this chain has succeeded."""
        if self.last is None:
            raise DefinitionError(
                f"then_include {external_id!r} has no single manifest before it to depend on: it must follow "
                f"schedule, include or then_include in one chain; after a batch use then_include_many with "
                f"Item(…, depends_on=…)"
            )
        self._declare(train, external_id, input, After(self.last), options)
        return replace(self, last=external_id)

    def schedule_many(
        self,
        train: Train[In, Any],
        name: str | None,
        items: Items[In],
        when: When,
        *,
        configure_each: ConfigureEach[In] | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train by a schedule for each item. The batch's `name` begins their ids, and owns them."""
        batch = Batch(train, name, options, configure_each)
        occasion = occasion_of(batch.place, when)
        self._declare_batch(batch, items, lambda item: _without_parent(item, occasion))
        return Cursor(self.ledger)

    def include_many(
        self,
        train: Train[In, Any],
        name: str | None,
        items: Items[In],
        *,
        configure_each: ConfigureEach[In] | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train for each item whenever what the item depends on, else the root, has succeeded."""
        batch = Batch(train, name, options, configure_each)
        self._declare_batch(batch, items, lambda item: _after(item, "include_many", self.root))
        return replace(self, last=None)

    def then_include_many(
        self,
        train: Train[In, Any],
        name: str | None,
        items: Items[In],
        *,
        configure_each: ConfigureEach[In] | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train for each item whenever what the item depends on has succeeded."""
        batch = Batch(train, name, options, configure_each)
        self._declare_batch(batch, items, lambda item: _after(item, "then_include_many"))
        return replace(self, last=None)

    def schedule_once(
        self,
        train: Train[In, Any],
        external_id: str,
        input: In,  # noqa: A002
        delay: timedelta = timedelta(),
        **options: Unpack[ScheduleKeywords],
    ) -> Cursor:
        """Run a train a single time, so long after the app starts."""
        DURATION(f"manifest {external_id!r}: delay", delay)
        self._declare(train, external_id, input, Once(delay), options)
        return Cursor(self.ledger)

    def _declare(
        self,
        train: Train[Any, Any],
        external_id: str,
        value: Any,
        occasion: Occasion,
        keywords: ScheduleKeywords,
    ) -> None:
        place = f"manifest {external_id!r}"
        check_train(place, train)
        options, codec = options_of(place, keywords), self.ledger.codec_of(train)
        manifest = declared(train, external_id, value, occasion, options, codec=codec)
        self.ledger.add([(manifest, options)])

    def _declare_batch(
        self, batch: Batch[Any], items: Items[Any], occasion_for: Callable[[Item[Any]], Occasion]
    ) -> None:
        check_train(batch.place, batch.train)
        codec = self.ledger.codec_of(batch.train)
        self.ledger.add(batch.declared(items, occasion_for, codec))


def _without_parent(item: Item[Any], occasion: Occasion) -> Occasion:
    if item.depends_on is not None:
        raise DefinitionError(
            f"schedule_many: item {item.id!r} depends on {item.depends_on!r}, but has a schedule of its own; "
            f"use include_many for what runs after another manifest"
        )
    return occasion


def _after(item: Item[Any], verb: str, otherwise: str | None = None) -> After:
    parent = item.depends_on or otherwise
    if parent is None:
        raise DefinitionError(
            f"{verb}: item {item.id!r} has nothing to depend on; write Item({item.id!r}, …, depends_on=…) "
            f"with the full external id of its parent"
        )
    return After(parent)
