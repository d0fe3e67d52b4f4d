"""Trains: typed pipelines of junctions. Usable without a database and without configuration.

Define
junction.py      a function, or a class with `__call__`, as one step
route.py         junctions joined with `>>`; check that they fit (CHAIN001, CHAIN002); plan their execution
train.py         a named route: a train; the registry, all trains of an app by name
options.py       retries, limits, priority and hooks of a train

Types
annotations.py   resolve and inspect the types of annotations
memory.py        the values of a run, found by type

One run
run.py           one run: the loop that executes the steps of a train, compiled once
services.py      dependency injection: services, and the arguments of a junction
outcome.py       Done, Failed, Cancelled or Interrupted; error details
context.py       around a run: cancel or interrupt it, `current()`, threads for synchronous code

Around it
codec.py         inputs and outputs as JSON text
secrets.py       hide secrets in that JSON; the keys that encrypt them
seal.py          seal what came in plain text, without the code of the train
"""

from __future__ import annotations

from trax.errors import Cancel, RetryAfter, Snooze
from trax.train.codec import Codec, input_codec, output_codec
from trax.train.context import Cancellation, Run, current, enter_run, set_current
from trax.train.junction import Junction, junction
from trax.train.memory import wired
from trax.train.options import Hook, Retry, TrainKeywords, TrainOptions
from trax.train.outcome import (
    Cancelled,
    Done,
    Failed,
    Interrupted,
    Outcome,
    TrainExceptionData,
    error_of,
    result_of,
)
from trax.train.route import Route, Segment, ShortCircuit, check_route, extract, short_circuit, unchecked
from trax.train.run import TrainRunKeywords
from trax.train.services import Services
from trax.train.train import DefinitionKeywords, Registry, Train, train, train_of

__all__ = [
    "Cancel",
    "Cancellation",
    "Cancelled",
    "Codec",
    "DefinitionKeywords",
    "Done",
    "Failed",
    "Hook",
    "Interrupted",
    "Junction",
    "Outcome",
    "Registry",
    "Retry",
    "RetryAfter",
    "Route",
    "Run",
    "Segment",
    "Services",
    "ShortCircuit",
    "Snooze",
    "Train",
    "TrainExceptionData",
    "TrainKeywords",
    "TrainOptions",
    "TrainRunKeywords",
    "check_route",
    "current",
    "enter_run",
    "error_of",
    "extract",
    "input_codec",
    "junction",
    "output_codec",
    "result_of",
    "set_current",
    "short_circuit",
    "train",
    "train_of",
    "unchecked",
    "wired",
]
