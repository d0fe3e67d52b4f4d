"""All trains of an app, by name. Stored names resolve only here, so no row can import code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.errors import DefinitionError, UnknownTrain
from trax.train.options import check_name, check_not_reserved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trax.train.train import Train


class Registry:
    """The trains of an app, found by name or alias."""

    def __init__(self) -> None:
        self._trains: dict[str, Train[Any, Any]] = {}
        self._by_any_name: dict[str, Train[Any, Any]] = {}

    def add(self, train: Train[Any, Any], *, internal: bool = False) -> None:
        """Register a train under its name and aliases: all, or none if one is taken."""
        names = (train.name, *train.options.aliases)
        for name in names:
            check_name(name)
            if not internal:
                check_not_reserved(name)
            self._refuse_duplicate(name, train)
        self._trains[train.name] = train
        self._by_any_name.update(dict.fromkeys(names, train))

    def get(self, name: str) -> Train[Any, Any]:
        train = self._by_any_name.get(name)
        if train is None:
            raise UnknownTrain(name, self._by_any_name)
        return train

    def synonyms(self, names: Iterable[str]) -> frozenset[str]:
        """These names, and all other names and aliases of their trains. Unknown names are kept."""
        trains = [self._by_any_name[name] for name in names if name in self._by_any_name]
        others = (name for train in trains for name in (train.name, *train.options.aliases))
        return frozenset((*names, *others))

    @property
    def names(self) -> list[str]:
        """The names of all trains, without aliases, sorted."""
        return sorted(self._trains)

    @property
    def names_and_aliases(self) -> frozenset[str]:
        """All names and aliases of the trains of this app."""
        return frozenset(self._by_any_name)

    @property
    def cpu_names(self) -> frozenset[str]:
        """All names and aliases of trains that run in a separate process."""
        return frozenset(name for name, train in self._by_any_name.items() if train.options.cpu)

    def __contains__(self, name: str) -> bool:
        return name in self._by_any_name

    def __iter__(self) -> Iterator[Train[Any, Any]]:
        return iter(self._trains.values())

    def __len__(self) -> int:
        return len(self._trains)

    def _refuse_duplicate(self, name: str, train: Train[Any, Any]) -> None:
        holder = self._by_any_name.get(name)
        if holder is not None:
            raise DefinitionError(
                f"train name {name!r} is registered twice: by train {holder.name!r} ({holder.route!r}) "
                f"and by train {train.name!r} ({train.route!r}); rename one of them"
            )
