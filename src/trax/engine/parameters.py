"""Encode the inputs and outputs of trains as JSON: validate, limit the size, mask secrets."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trax.errors import DefinitionError, FieldError, InvalidInput
from trax.escapes import visible_text
from trax.masking import HIDDEN
from trax.train import input_codec, output_codec
from trax.train.secrets import load_keyring
from trax.train.train import require_train

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.engine.live_settings import LiveSettings
    from trax.settings import Settings
    from trax.train import Codec, Registry, Train
    from trax.train.secrets import SecretMode

logger = logging.getLogger(__name__)
LONGEST_REASON: Final = 1_000
"""Characters of the reason why an output was not saved."""


class Parameters:
    """The codecs of an app's trains, each built once, and the rules for what records store."""

    def __init__(self, live: LiveSettings, trains: Registry) -> None:
        self._live = live
        self._trains = trains
        self._inputs: dict[str, Codec[Any]] = {}
        self._outputs: dict[str, Codec[Any] | DefinitionError] = {}
        """The codec of each train's output, or why its type cannot be JSON."""

    def input_codec(self, train: Train[Any, Any]) -> Codec[Any]:
        """The codec of the train's input. Raises DefinitionError for a type that JSON cannot represent."""
        if train.name not in self._inputs:
            self._inputs[train.name] = input_codec(train)
        return self._inputs[train.name]

    def codec_of_registered(self, train: Train[Any, Any]) -> Codec[Any]:
        """The same, for a train that workers look up by name: it must be registered in this app."""
        require_train(train)
        if train.name not in self._trains or self._trains.get(train.name) is not train:
            raise DefinitionError(
                f"train {train.name!r} is not registered in this app; define it with app.train, so that "
                "workers find it by name"
            )
        return self.input_codec(train)

    def plain_fields(self) -> dict[str, list[str] | None]:
        """For each train, by name and alias, the fields that cannot hold a secret; None: all of its input."""
        found: dict[str, list[str] | None] = {}
        for name in sorted(self._trains.names_and_aliases):
            try:
                plain = self.input_codec(self._trains.get(name)).plain_fields
            except DefinitionError:
                continue  # nobody can queue it
            found[name] = None if plain is None else sorted(plain)
        return found

    def input_writer(self, train: Train[Any, Any]) -> InputWriter:
        """The encoder for inputs that are queued later: by a schedule, or by a run that activates another."""
        return InputWriter(self.codec_of_registered(train), train, self._live)

    def find_train(self, name: str) -> tuple[Train[Any, Any], InputWriter]:
        """The train with this name, and the encoder of its inputs, which also accepts plain data."""
        train = self._trains.get(name)
        return train, InputWriter(self.input_codec(train), train, self._live, accepts_plain=True)

    def resolve(self, train: Train[Any, Any] | str, value: Any) -> tuple[Train[Any, Any], Any]:
        """A train and an input of its type. For a train given by name, the value may be plain data."""
        if not isinstance(train, str):
            require_train(train)
            return train, value
        found = self._trains.get(train)
        return found, decode_plain_input(value, found, self.input_codec(found), self._live.current)

    def input_to_save(self, text: str) -> str | None:
        return self._truncate(text) if self._live.current.save_inputs else None

    def output_to_save(self, train: Train[Any, Any], value: Any) -> str | None:
        """The output for the record, or None if outputs are not saved.

        An output that cannot be JSON does not fail the run: the record has a note with the reason instead.
        """
        if not self._saves_output(train):
            return None
        codec = self._output_codec(train)
        if isinstance(codec, DefinitionError):
            return _build_note(codec)
        if isinstance(value, UnreadableOutput):
            return _build_note(value.reason)
        try:
            return self._truncate(codec.encode(value, secrets="masked"))
        except InvalidInput as error:
            _log_unsaved(train, error)
            return _build_note(error)

    @property
    def saves_whole_inputs(self) -> bool:
        """Whether `input_to_save` is the input itself under the settings of this moment."""
        settings = self._live.current
        return settings.save_inputs and settings.max_parameter_bytes is None

    def output_saver(self, train: Train[Any, Any]) -> Callable[[Any], str | None]:
        """`output_to_save` under the settings of this moment, for many outputs of one train."""
        codec = self._output_codec(train)
        if not self._saves_output(train):
            return lambda _: None
        if isinstance(codec, DefinitionError):
            note = _build_note(codec)
            return lambda _: note
        if codec.is_of_nothing:
            return lambda _: "null"
        return partial(self.output_to_save, train)

    def _saves_output(self, train: Train[Any, Any]) -> bool:
        return train.options.save_outputs and self._live.current.save_outputs

    def output_problem(self, train: Train[Any, Any]) -> DefinitionError | None:
        """Why no output of this train can be saved: its type cannot be JSON."""
        codec = self._output_codec(train)
        return codec if isinstance(codec, DefinitionError) else None

    def encode_output(
        self, train: Train[Any, Any], value: Any, *, secrets: SecretMode = "masked"
    ) -> str | None:
        """The whole output as JSON text; None if there is none or it cannot be encoded."""
        codec = self._output_codec(train)
        if isinstance(codec, DefinitionError):
            return None
        try:
            return codec.encode(value, secrets=secrets)
        except InvalidInput as error:
            _log_unsaved(train, error)
            return None

    def output_to_send(self, train: Train[Any, Any], value: Any) -> str | None:
        """The same for a remote caller: secrets are encrypted if a key is set, else masked."""
        return self.encode_output(train, value, secrets=secret_mode())

    def _output_codec(self, train: Train[Any, Any]) -> Codec[Any] | DefinitionError:
        if train.name not in self._outputs:
            try:
                self._outputs[train.name] = output_codec(train)
            except DefinitionError as error:
                self._outputs[train.name] = error
        return self._outputs[train.name]

    def _truncate(self, text: str) -> str:
        limit = self._live.current.max_parameter_bytes
        if limit is None or _size_up_to(text, limit) <= limit:
            return text
        return f'{{"_truncated": true, "_maxBytes": {limit}}}'


@dataclass(frozen=True, slots=True)
class UnreadableOutput:
    """Stands for the output of a run elsewhere that this code cannot decode."""

    reason: InvalidInput


class InputWriter:
    """Encodes the inputs of one train; raises InvalidInput for one over `max_input_bytes`."""

    def __init__(
        self, codec: Codec[Any], train: Train[Any, Any], live: LiveSettings, *, accepts_plain: bool = False
    ) -> None:
        self._accepts_plain = accepts_plain
        self._codec = codec
        self._train = train
        self._live = live

    def encode(self, value: Any) -> str:
        if self._accepts_plain:
            value = decode_plain_input(value, self._train, self._codec, self._live.current)
        text = self._codec.encode(
            value, secrets="deterministic"
        )  # equal inputs, equal text: seeding compares
        return check_input_size(text, self._train, self._live.current)


def decode_plain_input(value: Any, train: Train[Any, Any], codec: Codec[Any], settings: Settings) -> Any:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return value  # not plain data: an instance of the input type, or invalid
    return codec.decode(check_input_size(text, train, settings))


def check_input_size(text: str, train: Train[Any, Any], settings: Settings) -> str:
    """Return the text unchanged; raises InvalidInput if it is over `max_input_bytes`."""
    limit = settings.max_input_bytes
    if limit is None or (size := _size_up_to(text, limit)) <= limit:
        return text
    message = f"the JSON has {size} bytes; max_input_bytes is {limit}"
    raise InvalidInput(f"train {train.name!r}: invalid input", [FieldError("", message, HIDDEN)])


def _size_up_to(text: str, limit: int) -> int:
    """Size in bytes, or an upper bound if that is within the limit: a character has at most 4 bytes."""
    at_most = 4 * len(text)
    return at_most if at_most <= limit else len(text.encode())


def secret_mode() -> SecretMode:
    """How to store secrets that nothing needs to read again: a missing key must not fail the run."""
    return "masked" if load_keyring() is None else "sealed"


def _build_note(reason: Exception) -> str:
    """What a record has instead of an output that was not saved."""
    text = str(reason)
    cut = text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"
    return json.dumps({"_notSaved": visible_text(cut)}, ensure_ascii=False)


def _log_unsaved(train: Train[Any, Any], error: InvalidInput) -> None:
    logger.warning("train %r: output not saved: %s", train.name, error, extra={"train": train.name})
