"""Trains: typed pipelines of junctions. Usable without a database and without configuration.

Define                 junction     a function, or a class with `__call__`, as one step
                       route        junctions joined with `>>`; short_circuit, extract, unchecked
                       define       a named route: a train
                       options      retries, limits, priority and hooks of a train

Prepare once           scope        resolve the names in annotations
                       signature    the parameters and the return type of a callable
                       declared     inspect declared types
                       keys         the memory keys of a type or a value
                       instances    whether a value matches a declared type
                       check        whether the junctions of a route fit together (CHAIN001, CHAIN002)
                       plan         the executable steps of a route

One run                train         run, attempt, and their blocking forms
                       journey       execute the steps, return an outcome
                       memory        the values of the run, by type
                       wiring        find the arguments of a junction
                       services      dependency injection; provision creates and closes services
                       cancellation  ask a run to stop
                       threads       synchronous code in an async run
                       requests      what a junction raises: Cancel, RetryAfter, Snooze
                       outcome       Done | Failed | Cancelled | Interrupted
                       failure       error details attached to an exception
                       context       the current recorded run

Around it              registry, names   all trains of an app
                       codec, fidelity   inputs and outputs as JSON text, and what JSON cannot represent
                       secrets, keyring  hide secrets in that JSON, and the keys that encrypt them
"""

from __future__ import annotations

from trax.train.cancellation import Cancellation
from trax.train.codec import Codec, input_codec, output_codec
from trax.train.context import Run, current, enter_run
from trax.train.junction import Junction, junction
from trax.train.memory import wired
from trax.train.options import Hook, Retry, TrainKeywords, TrainOptions
from trax.train.outcome import (
    Cancel,
    Cancelled,
    Done,
    Failed,
    Interrupted,
    Outcome,
    RetryAfter,
    Snooze,
    TrainExceptionData,
    error_of,
    result_of,
)
from trax.train.registry import Registry
from trax.train.route import Route, Segment, ShortCircuit, check_route, extract, short_circuit, unchecked
from trax.train.run import TrainRunKeywords
from trax.train.services import Services
from trax.train.train import DefinitionKeywords, Train, train, train_of

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
    "short_circuit",
    "train",
    "train_of",
    "unchecked",
    "wired",
]
