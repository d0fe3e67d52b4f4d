"""OpenTelemetry spans and metrics of an app.

Without a configured tracer or meter provider in this process, OpenTelemetry is not imported and
`telemetry.now` is None.
"""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from trax.worker.otel import Instruments
    from trax.worker.worker import Worker

PROVIDER_VARIABLES: Final = ("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER")
"""Environment variables that make OpenTelemetry load a provider."""


class Providers(NamedTuple):
    """Where spans and measurements go."""

    tracers: TracerProvider
    meters: MeterProvider


class Telemetry:
    """Finds the providers at first use and caches the instruments."""

    def __init__(self) -> None:
        self._providers: Providers | None = None

    @cached_property
    def now(self) -> Instruments | None:
        """The instruments; None without a provider. Cached, so as cheap as any attribute."""
        providers = self._providers or find_providers()
        if providers is None:
            return None
        from trax.worker.otel import instruments_of

        return instruments_of(providers)

    def reset(self) -> None:
        """Drop the cached instruments: a provider may have been configured since."""
        self.__dict__.pop("now", None)

    def add_worker(self, worker: Worker) -> None:
        """Report the load of a worker until it is removed."""
        if self.now is not None:
            self.now.workers.add(worker)

    def remove_worker(self, worker: Worker) -> None:
        if self.now is not None:
            self.now.workers.discard(worker)

    def use(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        """Use these providers instead of the configured ones."""
        self._providers = Providers(tracers, meters)
        self.reset()


def find_providers() -> Providers | None:
    """The providers of this process; None if neither is configured."""
    if not _can_have_provider():
        return None
    from opentelemetry import metrics, trace

    found = Providers(trace.get_tracer_provider(), metrics.get_meter_provider())
    return found if any(map(_does_something, found)) else None


def _can_have_provider() -> bool:
    """Whether a provider is possible: the API module is imported, or an environment variable is set."""
    modules = ("opentelemetry.trace", "opentelemetry.metrics")
    return any(name in sys.modules for name in modules) or any(map(os.environ.get, PROVIDER_VARIABLES))


def _does_something(provider: object) -> bool:
    """False for the placeholders that the OpenTelemetry API defines itself."""
    home = type(provider).__module__
    return not home.startswith(("opentelemetry.trace", "opentelemetry.metrics"))
