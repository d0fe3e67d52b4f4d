"""What an app is made of, put together once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from trax.dispatch.routing import Routing
from trax.events import Events
from trax.host.activating import Activating
from trax.host.opening import OpenStore
from trax.host.parameters import Parameters
from trax.schedule.builder import Declarations
from trax.settings import Settings
from trax.train import Registry, Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that resources, loops and tests share."""

    settings: Settings
    store: OpenStore
    trains: Registry
    services: Services
    parameters: Parameters
    declarations: Declarations
    activating: Activating
    events: Events

    @property
    def routing(self) -> Routing:
        """What the gate knows of this app's trains, as they are registered by now."""
        names = [
            (name, train.options) for train in self.trains for name in (train.name, *train.options.aliases)
        ]
        return Routing(
            submitters={name: options.submitter for name, options in names if options.submitter},
            exempt=frozenset(name for name, options in names if options.exclude_from_max_active_jobs),
        )

    @classmethod
    def made(cls, address: str, settings: Settings) -> Self:
        trains = Registry()
        store, parameters = OpenStore(address, settings), Parameters(settings, trains)
        return cls(
            settings=settings,
            store=store,
            trains=trains,
            services=Services(),
            parameters=parameters,
            declarations=Declarations(parameters.of_registered),
            activating=Activating(store, trains, parameters, settings),
            events=Events(),
        )
