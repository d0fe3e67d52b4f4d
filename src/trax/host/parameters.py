"""Inputs and outputs on their way into a record: checked, turned into JSON, and cut when too large."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trax.errors import DefinitionError, FieldError, InvalidInput
from trax.masking import HIDDEN
from trax.train import input_codec, output_codec
from trax.train.keyring import load_keyring

if TYPE_CHECKING:
    from trax.host.live_settings import LiveSettings
    from trax.settings import Settings
    from trax.train import Codec, Registry, Train
    from trax.train.secrets import Keeping

logger = logging.getLogger(__name__)


class Parameters:
    """The codecs of an app's trains, each made once, and the rules for what is kept."""

    def __init__(self, live: LiveSettings, trains: Registry) -> None:
        self._live = live
        self._trains = trains
        self._inputs: dict[str, Codec[Any]] = {}
        self._outputs: dict[str, Codec[Any] | None] = {}

    def of_input(self, train: Train[Any, Any]) -> Codec[Any]:
        """Raises DefinitionError for an input type that cannot travel as JSON."""
        if train.name not in self._inputs:
            self._inputs[train.name] = input_codec(train)
        return self._inputs[train.name]

    def of_registered(self, train: Train[Any, Any]) -> Codec[Any]:
        """The same, for a train that will be found again by its name alone: it must be this app's."""
        if train.name not in self._trains or self._trains.get(train.name) is not train:
            raise DefinitionError(
                f"train {train.name!r} is not registered in this app; define it with app.train, so that a "
                "worker finds it by its name"
            )
        return self.of_input(train)

    def measured(self, train: Train[Any, Any]) -> Measured:
        """The way in for what will be queued some day: by a schedule, or by a run that wakes another."""
        return Measured(self.of_registered(train), train, self._live)

    def saved_input(self, text: str) -> str | None:
        return self._cut(text) if self._live.now.save_inputs else None

    def saved_output(self, train: Train[Any, Any], value: Any) -> str | None:
        """The output for the record, or nothing: a train that did its work has succeeded all the same."""
        text = self.written_output(train, value) if self._live.now.save_outputs else None
        return None if text is None else self._cut(text)

    def written_output(
        self, train: Train[Any, Any], value: Any, *, secrets: Keeping = "masked"
    ) -> str | None:
        """The whole output as JSON text, or nothing where it has none. Its secrets are masked."""
        codec = self._of_output(train)
        try:
            return None if codec is None else codec.encode(value, secrets=secrets)
        except InvalidInput as refused:
            logger.warning("%s; the output is not saved", refused, extra={"train": train.name})
            return None

    def sent_output(self, train: Train[Any, Any], value: Any) -> str | None:
        """The same for whoever called from elsewhere: its secrets are encrypted, where there is a key."""
        return self.written_output(train, value, secrets=encrypted_if_possible())

    def _of_output(self, train: Train[Any, Any]) -> Codec[Any] | None:
        if train.name not in self._outputs:
            self._outputs[train.name] = _codec_if_possible(train)
        return self._outputs[train.name]

    def _cut(self, text: str) -> str:
        limit = self._live.now.max_parameter_bytes
        if limit is None or _size(text, limit) <= limit:
            return text
        return f'{{"_truncated": true, "_maxBytes": {limit}}}'


class Measured:
    """Writes the inputs of one train, and refuses those that are too large to be queued."""

    def __init__(self, codec: Codec[Any], train: Train[Any, Any], live: LiveSettings) -> None:
        self._codec = codec
        self._train = train
        self._live = live

    def encode(self, value: Any) -> str:
        text = self._codec.encode(value, secrets="steady")  # so that seeding finds what has not changed
        return fitting(text, self._train, self._live.now)


def fitting(text: str, train: Train[Any, Any], settings: Settings) -> str:
    """The same text, if an input may be as large."""
    limit = settings.max_input_bytes
    if limit is None or (size := _size(text, limit)) <= limit:
        return text
    message = f"its JSON measures {size} bytes, and max_input_bytes is {limit}"
    raise InvalidInput(f"train {train.name!r} refused its input", [FieldError("", message, HIDDEN)])


def encrypted_if_possible() -> Keeping:
    """How secrets are written that need not be kept: a record of them is worth less than the run itself."""
    return "masked" if load_keyring() is None else "sealed"


def _size(text: str, limit: int) -> int:
    """In bytes. No character takes more than four: most texts need not be encoded to know that they fit."""
    at_most = 4 * len(text)
    return at_most if at_most <= limit else len(text.encode())


def _codec_if_possible(train: Train[Any, Any]) -> Codec[Any] | None:
    try:
        return output_codec(train)
    except DefinitionError as refused:
        logger.debug("the outputs of train %r are not saved: %s", train.name, refused)
        return None
