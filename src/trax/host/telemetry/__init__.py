"""What an app tells OpenTelemetry, if anybody listens.

Nothing of it is imported, and nothing is measured, unless this process has a provider of spans or metrics
that does something with them. Whoever has something to tell asks `telemetry.now`, which is None otherwise.
"""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from trax.host.telemetry.instruments import Instruments
    from trax.host.worker import Worker

ASKED_FOR: Final = ("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER")
"""Variables by which a provider is loaded when it is first asked for."""


class Providers(NamedTuple):
    """Where spans and measurements go."""

    tracers: TracerProvider
    meters: MeterProvider


class Telemetry:
    """Looks for a listener at the first use after a start, and remembers the answer."""

    def __init__(self) -> None:
        self._given: Providers | None = None

    @cached_property
    def now(self) -> Instruments | None:
        """Who is told; None when nobody listens. Once known, it costs no more than any attribute."""
        providers = self._given or configured()
        if providers is None:
            return None
        from trax.host.telemetry.instruments import instruments_of

        return instruments_of(providers)

    def look_again(self) -> None:
        """Forget the answer: a provider may have come since."""
        self.__dict__.pop("now", None)

    def watch(self, worker: Worker) -> None:
        """Tell how busy a worker is, until it leaves."""
        if self.now is not None:
            self.now.workers.add(worker)

    def leave(self, worker: Worker) -> None:
        if self.now is not None:
            self.now.workers.discard(worker)

    def use(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        """Tell these, whatever the process has configured."""
        self._given = Providers(tracers, meters)
        self.look_again()


def configured() -> Providers | None:
    """The providers of this process; None if neither does anything."""
    if not _is_provided():
        return None
    from opentelemetry import metrics, trace

    found = Providers(trace.get_tracer_provider(), metrics.get_meter_provider())
    return found if any(map(_does_something, found)) else None


def _is_provided() -> bool:
    """Whether there can be a provider at all: setting one takes its module, or a variable that names it."""
    modules = ("opentelemetry.trace", "opentelemetry.metrics")
    return any(name in sys.modules for name in modules) or any(map(os.environ.get, ASKED_FOR))


def _does_something(provider: object) -> bool:
    """The placeholders that stand for no provider are the ones that the API itself defines."""
    home = type(provider).__module__
    return not home.startswith(("opentelemetry.trace", "opentelemetry.metrics"))
