"""Typed pipelines, usable with no database and no configuration.

You write              junction     a function (or a class that is called) as one step
                       route        steps coupled with `>>`; short circuits, and extract
                       define       a name for a route: a train
                       options      how its runs are handled

Decided once           scope        what the names in annotations mean
                       signature    what a callable asks for and gives
                       declared     types as they are written
                       keys         under which keys a value travels
                       instances    whether a value is what a type says
                       check        whether the junctions of a route fit together
                       plan         a route made ready to travel

One run                train         run, attempt, and their blocking forms
                       journey       from step to step to an outcome
                       memory        the values of the run, by type
                       wiring        finding what memory alone does not have
                       services      what can be asked for; provision makes and closes it
                       cancellation  asking a run to stop
                       threads       synchronous code in an async run
                       requests      what a junction raises: Cancel, RetryAfter, Snooze
                       outcome       Done | Failed | Cancelled | Interrupted
                       failure       what an exception carries when it leaves a train
                       context       which recorded run the code is part of

Around it              registry, names   all trains of an app
                       codec, fidelity   inputs and outputs as JSON text, and what that may lose
                       secrets, keyring  what must not be read in it, and the keys that encrypt it
"""

from __future__ import annotations

from trax.train.cancellation import Cancellation
from trax.train.check import check_route
from trax.train.codec import Codec, input_codec, output_codec
from trax.train.context import Run, current, entered
from trax.train.define import DefinitionKeywords, train, train_of
from trax.train.failure import TrainExceptionData
from trax.train.journey import RunKeywords
from trax.train.junction import Junction, junction
from trax.train.keys import wired
from trax.train.options import Hook, Retry, TrainKeywords, TrainOptions
from trax.train.outcome import Cancelled, Done, Failed, Interrupted, Outcome, error_of, result_of
from trax.train.registry import Registry
from trax.train.requests import Cancel, RetryAfter, Snooze
from trax.train.route import Route, Segment, ShortCircuit, extract, short_circuit, unchecked
from trax.train.services import Services
from trax.train.train import Train

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
    "RunKeywords",
    "Segment",
    "Services",
    "ShortCircuit",
    "Snooze",
    "Train",
    "TrainExceptionData",
    "TrainKeywords",
    "TrainOptions",
    "check_route",
    "current",
    "entered",
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
