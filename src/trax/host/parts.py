"""The components of an app, and how they are built."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from trax.dispatch.fleet import WorkerFleet
from trax.dispatch.routing import LOCAL, Submitters
from trax.events import Events
from trax.host.activating import ManifestActivator
from trax.host.hooks import Hooks
from trax.host.identity import Identity
from trax.host.limits import RunLimits
from trax.host.live_settings import LiveSettings
from trax.host.notebook import RunLog
from trax.host.odometer import ProcessCounters
from trax.host.opening import LazyStore
from trax.host.parameters import Parameters
from trax.host.presence import Heartbeat
from trax.host.telemetry import Telemetry
from trax.host.waiting import EntryWaiter
from trax.schedule.builder import Declarations
from trax.train import Registry, Services

if TYPE_CHECKING:
    from trax.dispatch.routing import Routing
    from trax.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The components that resources, loops and tests share."""

    name: str
    live: LiveSettings
    store: LazyStore
    trains: Registry
    services: Services
    submitters: Submitters
    parameters: Parameters
    declarations: Declarations
    activator: ManifestActivator
    entry_waiter: EntryWaiter
    events: Events
    identity: Identity
    heartbeat: Heartbeat
    hooks: Hooks
    limits: RunLimits
    run_log: RunLog
    telemetry: Telemetry
    counters: ProcessCounters

    @property
    def settings(self) -> Settings:
        """The current settings. Read them each time: an operator may change them at any moment."""
        return self.live.current

    @property
    def routing(self) -> Routing:
        """Which submitter each registered train goes to, for the dispatcher."""
        return self.submitters.build_routing(self.trains)

    @property
    def routes_json(self) -> str:
        """Train to submitter as JSON: other servers admit these trains because this one submits them."""
        return json.dumps(self.routing.routes)

    def own_routes(self) -> WorkerFleet:
        """The routes of this server alone."""
        routing = self.routing
        return WorkerFleet(routes=routing.routes, accepts_any=routing.default != LOCAL)

    @classmethod
    def build(cls, address: str, live: LiveSettings, name: str = "default") -> Self:
        trains, events = Registry(), Events()
        store, parameters = LazyStore(address, live, events), Parameters(live, trains)
        identity = Identity.detect(live.current)
        return cls(
            name=name,
            live=live,
            store=store,
            trains=trains,
            services=Services(),
            submitters=Submitters(),
            parameters=parameters,
            declarations=Declarations(parameters.input_writer),
            activator=ManifestActivator(store, trains, parameters, live),
            entry_waiter=EntryWaiter(store, events),
            events=events,
            identity=identity,
            heartbeat=Heartbeat(store, live, identity, name),
            hooks=Hooks(parameters),
            limits=RunLimits(live),
            run_log=RunLog(live, events),
            telemetry=Telemetry(),
            counters=ProcessCounters(),
        )
