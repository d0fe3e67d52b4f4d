"""What an app is made of, put together once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from trax.dispatch.fleet import Fleet
from trax.dispatch.routing import LOCAL, Submitters
from trax.events import Events
from trax.host.activating import Activating
from trax.host.hooks import Hooks
from trax.host.identity import Identity
from trax.host.limits import RunLimits
from trax.host.live_settings import LiveSettings
from trax.host.notebook import Notebook
from trax.host.odometer import Odometer
from trax.host.opening import OpenStore
from trax.host.parameters import Parameters
from trax.host.presence import Presence
from trax.host.telemetry import Telemetry
from trax.host.waiting import Waiting
from trax.schedule.builder import Declarations
from trax.train import Registry, Services

if TYPE_CHECKING:
    from trax.dispatch.routing import Routing
    from trax.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that resources, loops and tests share."""

    name: str
    live: LiveSettings
    store: OpenStore
    trains: Registry
    services: Services
    submitters: Submitters
    parameters: Parameters
    declarations: Declarations
    activating: Activating
    waiting: Waiting
    events: Events
    identity: Identity
    presence: Presence
    hooks: Hooks
    limits: RunLimits
    notebook: Notebook
    telemetry: Telemetry
    odometer: Odometer

    @property
    def settings(self) -> Settings:
        """The settings now in force. Ask anew each time: an operator may edit them at any moment."""
        return self.live.now

    @property
    def routing(self) -> Routing:
        """What the gate knows of this app's trains, as they are registered by now."""
        return self.submitters.routing(self.trains)

    @property
    def published_routes(self) -> str:
        """Which trains this server hands over to whom, as JSON, so that other servers let them in for it."""
        return json.dumps(self.routing.routes)

    def own_routes(self) -> Fleet:
        """What this server hands over itself, whoever else is there."""
        routing = self.routing
        return Fleet(routes=routing.routes, takes_any=routing.default != LOCAL)

    @classmethod
    def made(cls, address: str, live: LiveSettings, name: str = "default") -> Self:
        trains, events = Registry(), Events()
        store, parameters = OpenStore(address, live, events), Parameters(live, trains)
        identity = Identity.found(live.now)
        return cls(
            name=name,
            live=live,
            store=store,
            trains=trains,
            services=Services(),
            submitters=Submitters(),
            parameters=parameters,
            declarations=Declarations(parameters.measured),
            activating=Activating(store, trains, parameters, live),
            waiting=Waiting(store, events),
            events=events,
            identity=identity,
            presence=Presence(store, live, identity, name),
            hooks=Hooks(parameters),
            limits=RunLimits(live),
            notebook=Notebook(live, events),
            telemetry=Telemetry(),
            odometer=Odometer(),
        )
