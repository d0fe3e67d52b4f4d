"""Who executes a train, and whether its runs occupy a place under the limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from trax.dispatch.submit import Submitter, check_submitter
from trax.errors import DefinitionError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trax.train import Train

LOCAL: Final = "local"
"""Our own workers: a pending run of theirs is the job itself, so there is no hand-off to get lost in."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What the gate knows of trains: only names, since an entry may be for a train of another server."""

    submitters: Mapping[str, str] = field(default_factory=dict[str, str])
    exempt: frozenset[str] = frozenset()
    default: str = LOCAL
    known: frozenset[str] = frozenset()
    """Every name of the trains that this server's code has."""

    @property
    def is_local(self) -> bool:
        """Whether everything goes to our own workers."""
        return self.default == LOCAL and all(name == LOCAL for name in self.submitters.values())

    @property
    def routes(self) -> dict[str, str]:
        """The trains of this server's code that go elsewhere than to our own workers, and where."""
        submitters = {train: self.submitter_of(train) for train in self.known}
        return {train: to for train, to in submitters.items() if to != LOCAL}

    def extended(self, submitters: Mapping[str, str]) -> Routing:
        """The same with more trains that are sent elsewhere."""
        return replace(self, submitters={**submitters, **self.submitters})

    def submitter_of(self, train: str) -> str:
        return self.submitters.get(train, self.default)


class Submitters:
    """The submitters of an app, each once, and which trains go to which. What nobody routed is local."""

    def __init__(self) -> None:
        self._known: dict[str, Submitter] = {}
        self._routes: dict[str, list[str]] = {}
        self._default = LOCAL

    def add(self, submitter: Submitter) -> None:
        """Make a submitter known under its name, so that trains may name it: `submitter="cluster"`."""
        check_submitter(submitter)
        if submitter.name == LOCAL:
            raise DefinitionError(f"the name {LOCAL!r} means our own workers; name the submitter otherwise")
        holder = self._known.setdefault(submitter.name, submitter)
        if holder is not submitter:
            raise DefinitionError(
                f"there are two submitters named {submitter.name!r}: {holder!r} and {submitter!r}; "
                "give each a name of its own"
            )

    def route(self, train: str, to: Submitter | str) -> None:
        """Send the runs of a train there. Whether that can be is checked when the app starts."""
        self._routes.setdefault(train, []).append(self._named(to))

    @property
    def default(self) -> str:
        """Who gets what was not routed."""
        return self._default

    @default.setter
    def default(self, to: Submitter | str) -> None:
        self._default = self._named(to)

    def __iter__(self) -> Iterator[Submitter]:
        return iter(self._known.values())

    def check(self, trains: Iterable[Train[Any, Any]]) -> None:
        """Refuse a train that is sent to two, and a name that is nobody's."""
        self._check_known(self._default, "the default submitter")
        for train in trains:
            wanted = self._wanted(train)
            if len(wanted) > 1:
                both = " and ".join(repr(name) for name in wanted)
                raise DefinitionError(f"train {train.name!r} is routed to {both}; route it to one of them")
            for name in wanted:
                self._check_known(name, f"train {train.name!r}")

    def routing(self, trains: Iterable[Train[Any, Any]]) -> Routing:
        """What the gate has to know of these trains."""
        each = [(train, (train.name, *train.options.aliases)) for train in trains]
        return Routing(
            submitters={
                name: wanted for train, names in each for wanted in self._wanted(train) for name in names
            },
            exempt=frozenset(
                name for train, names in each if train.options.exclude_from_max_active_jobs for name in names
            ),
            default=self._default,
            known=frozenset(name for _, names in each for name in names),
        )

    def leave_work_here(self, trains: Iterable[Train[Any, Any]]) -> bool:
        """Whether our own workers have anything to do: not when all trains are routed away."""
        destinations = {name for train in trains for name in self._wanted(train) or [self._default]}
        return LOCAL in (destinations or {self._default})

    def _named(self, to: Submitter | str) -> str:
        if isinstance(to, str):
            return to
        self.add(to)
        return to.name

    def _wanted(self, train: Train[Any, Any]) -> list[str]:
        own = [train.options.submitter] if train.options.submitter else []
        return list(dict.fromkeys([*own, *self._routes.get(train.name, [])]))

    def _check_known(self, name: str, who: str) -> None:
        known = [LOCAL, *self._known]
        if name not in known:
            raise DefinitionError(
                f"{who}: there is no submitter {name!r}{did_you_mean(name, known)}; "
                f"known are {', '.join(known)}; add it with app.submitters.add(…)"
            )
