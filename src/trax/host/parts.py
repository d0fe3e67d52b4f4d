"""What an app is made of, put together once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

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

    @classmethod
    def made(cls, address: str, settings: Settings) -> Self:
        store, trains, parameters = OpenStore(address, settings), Registry(), Parameters(settings)
        return cls(
            settings=settings,
            store=store,
            trains=trains,
            services=Services(),
            parameters=parameters,
            declarations=Declarations(parameters.of_input),
            activating=Activating(store, trains, parameters, settings),
            events=Events(),
        )
