"""Secrets of pydantic in a train's types: never in plain text, and whole again where they are needed."""

from __future__ import annotations

import dataclasses
import json
from datetime import date
from typing import Annotated, Any, Union

import pytest
from pydantic import (
    BaseModel,
    Field,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    field_serializer,
    model_serializer,
)
from typing_extensions import TypedDict

from trax.errors import DefinitionError, InvalidInput, MissingExtra, SecretUnreadable
from trax.masking import HIDDEN
from trax.train import Codec
from trax.train.secrets import (
    VARIABLE,
    Keyring,
    generate_key,
    hide_words,
    key_id,
    load_keyring,
    secret_words_of,
)

PLAIN = "hunter-2"


class Login(BaseModel):
    user: str
    token: SecretStr
    retries: int = 1


class Node(BaseModel):
    key: SecretStr | None = None
    children: list[Node] = []


@dataclasses.dataclass
class Box:
    inside: SecretStr


class Typed(TypedDict):
    word: SecretBytes


class Day(Secret[date]):
    def _display(self) -> str:
        return "a day"


class Tokens(RootModel[dict[int, SecretStr]]): ...


class Written(BaseModel):
    """As the documentation of pydantic shows how to write a secret in plain text."""

    word: SecretStr

    @field_serializer("word")
    def write(self, value: SecretStr) -> str:
        return value.get_secret_value()


class Deep(BaseModel):
    model_config = {"extra": "allow"}

    items: list[SecretStr] = []
    named: dict[str, Login] = {}
    either: Union[int, SecretStr] = 0  # noqa: UP007 - as it is often written
    bound: Annotated[SecretStr, Field(min_length=3)] = SecretStr("none")
    number: Secret[int] = Secret[int](0)
    day: Day = Day(date(2027, 3, 1))
    box: Box | None = None
    typed: Typed | None = None
    node: Node = Node()
    pair: tuple[SecretStr, int] | None = None
    written: Written | None = None


DEEP = Deep(
    items=[SecretStr(PLAIN), SecretStr(PLAIN + "b")],
    named={"a": Login(user="ada", token=SecretStr(PLAIN + "c"))},
    either=SecretStr(PLAIN + "d"),
    bound=SecretStr(PLAIN + "e"),
    number=Secret[int](770077),
    day=Day(date(1999, 12, 31)),
    box=Box(SecretStr(PLAIN + "f")),
    typed={"word": SecretBytes(PLAIN.encode())},
    node=Node(children=[Node(key=SecretStr(PLAIN + "g"))]),
    pair=(SecretStr(PLAIN + "h"), 1),
    written=Written(word=SecretStr(PLAIN + "i")),
)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    made = generate_key()
    monkeypatch.setenv(VARIABLE, made)
    return made


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def codec_of(declared: Any, *trains: str, role: str = "input") -> Codec[Any]:
    return Codec(declared, owner="train 'greet'", trains=trains or ("greet",), role=role)


@pytest.mark.parametrize(
    "declared",
    [
        *(SecretStr, SecretBytes, Secret[int], Day, Login, Node, Box, Typed, Tokens, Written, Deep),
        *(list[SecretStr], dict[str, tuple[int, Secret[date]]], SecretStr | None),
        Annotated[SecretStr, Field(min_length=1)],
    ],
    ids=str,
)
def test_a_type_that_may_hold_a_secret_is_known_by_its_definition(declared: Any) -> None:
    assert codec_of(declared).holds_secrets


@pytest.mark.parametrize("declared", [str, bytes, dict[str, Any], list[int], None, Any], ids=str)
def test_other_types_are_written_as_ever(declared: Any) -> None:
    assert not codec_of(declared).holds_secrets


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (Deep, DEEP),
        (Login, Login(user="ada", token=SecretStr(PLAIN))),
        (SecretStr, SecretStr(PLAIN)),
        (SecretStr, SecretStr("")),
        (SecretStr, SecretStr('hunter-2 "\\ ü \N{SNOWMAN}')),
        (SecretBytes, SecretBytes(PLAIN.encode())),
        (Tokens, Tokens({7: SecretStr(PLAIN)})),
        (dict[int, SecretStr], {7: SecretStr(PLAIN)}),
        (set[SecretStr], {SecretStr(PLAIN + letter) for letter in "abcdef"}),
        (Box, Box(SecretStr(PLAIN))),
        (SecretStr | None, None),
    ],
    ids=lambda each: str(getattr(each, "__name__", ""))[:20],
)
@pytest.mark.parametrize("keeping", ["sealed", "deterministic"])
def test_a_secret_is_encrypted_wherever_it_stands_and_whole_again_when_read(
    declared: Any, value: Any, keeping: Any
) -> None:
    codec = codec_of(declared)

    text = codec.encode(value, secrets=keeping)

    assert not any(word in text for word in ("hunter", "770077", "1999"))
    assert codec.decode(text) == value
    assert codec.copy(value) == value


@pytest.mark.usefixtures("no_key")
def test_without_a_key_a_secret_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidInput) as refused:
        codec_of(Deep).encode(DEEP)

    assert "train 'greet': invalid input" in str(refused.value)
    assert "install trax-scheduler[secrets] and set $TRAX_SECRET_KEY" in str(refused.value)
    assert [error.path for error in refused.value.errors][:3] == ["items.0", "items.1", "named.a.token"]
    assert PLAIN not in str(refused.value)


@pytest.mark.usefixtures("no_key")
def test_a_value_without_a_secret_needs_no_key() -> None:
    assert codec_of(Node).decode(codec_of(Node).encode(Node())) == Node()


@pytest.mark.usefixtures("no_key")
def test_a_secret_can_be_masked_instead_and_then_is_gone() -> None:
    codec = codec_of(Login)

    text = codec.encode(Login(user="ada", token=SecretStr(PLAIN)), secrets="masked")

    assert json.loads(text) == {"user": "ada", "token": {"$secret": "masked"}, "retries": 1}
    with pytest.raises(SecretUnreadable, match=r"token: is a secret that was not stored; provide it again"):
        codec.decode(text)


@pytest.mark.usefixtures("key")
def test_equal_secrets_have_equal_ciphertexts_only_in_deterministic_mode() -> None:
    codec, value = codec_of(Login), Login(user="ada", token=SecretStr(PLAIN))

    assert codec.encode(value, secrets="deterministic") == codec.encode(value, secrets="deterministic")
    assert codec.encode(value) != codec.encode(value)


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize(
    ("declared", "trains", "role"),
    [
        (Login, ("other",), "input"),
        (Login, ("greet",), "output"),
        (create := dict[str, SecretStr | str], ("greet",), "input"),
    ],
)
def test_a_secret_cannot_be_moved_elsewhere(declared: Any, trains: tuple[str, ...], role: str) -> None:
    text = codec_of(Login).encode(Login(user="ada", token=SecretStr(PLAIN)))
    moved = text.replace('"token"', '"note"') if declared is not Login else text

    with pytest.raises(SecretUnreadable, match=r"was encrypted for input\.token of train 'greet'"):
        codec_of(declared, *trains, role=role).decode(moved.replace(',"retries":1', ""))


@pytest.mark.usefixtures("key")
def test_a_secret_that_was_changed_or_relabelled_is_refused() -> None:
    codec = codec_of(Login)
    document = json.loads(codec.encode(Login(user="ada", token=SecretStr(PLAIN))))
    version, key, ciphertext, place = document["token"]["$secret"].split(":", 3)
    altered = ("A" if ciphertext[0] != "A" else "B") + ciphertext[1:]

    for sealed, trains in (
        (f"{version}:{key}:{altered}:{place}", ("greet",)),
        (f"{version}:{key}:{ciphertext}:other input.token", ("other",)),
    ):
        text = json.dumps(document | {"token": {"$secret": sealed}})
        with pytest.raises(SecretUnreadable, match=f"was modified after key {key} encrypted it"):
            codec_of(Login, *trains).decode(text)


@pytest.mark.usefixtures("key")
def test_a_train_reads_what_was_encrypted_under_a_name_it_had_before() -> None:
    text = codec_of(Login).encode(Login(user="ada", token=SecretStr(PLAIN)))

    assert codec_of(Login, "welcome", "greet").decode(text).token.get_secret_value() == PLAIN


def test_all_keys_decrypt_and_the_first_encrypts(monkeypatch: pytest.MonkeyPatch) -> None:
    codec, value = codec_of(Login), Login(user="ada", token=SecretStr(PLAIN))
    old, new = generate_key(), generate_key()
    monkeypatch.setenv(VARIABLE, old)
    text = codec.encode(value)

    monkeypatch.setenv(VARIABLE, f"{new}, {old}")
    assert codec.decode(text) == value
    resealed = codec.encode(value)

    monkeypatch.setenv(VARIABLE, new)
    assert codec.decode(resealed) == value
    with pytest.raises(SecretUnreadable) as unreadable:
        codec.decode(text)
    (error,) = unreadable.value.errors
    assert error.path == "token"
    assert "is encrypted with key " in error.message
    assert "which is missing from $TRAX_SECRET_KEY here" in error.message
    assert not any(secret in str(unreadable.value) for secret in (PLAIN, old, new))

    monkeypatch.delenv(VARIABLE)
    with pytest.raises(SecretUnreadable, match="which is missing from \\$TRAX_SECRET_KEY here"):
        codec.decode(text)


def test_a_secret_moves_to_the_first_key_and_stays_what_it_was() -> None:
    old, new = b"o" * 32, b"n" * 32
    sealed = Keyring([old]).seal(PLAIN, "greet", "input.token", deterministic=True)

    moved = Keyring([new, old]).reseal(sealed)

    assert moved == Keyring([new]).seal(PLAIN, "greet", "input.token", deterministic=True)
    assert Keyring([new]).reseal(moved) == moved
    assert key_id(new) in moved


@pytest.mark.parametrize("text", ["hunter-2", "aHVudGVyLTI=", "ä", "x" * 44])
def test_a_key_that_is_none_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(VARIABLE, f"{generate_key()},{text}")

    with pytest.raises(
        DefinitionError, match=r"key 2 of 2 is not 32 bytes in base64; run `trax secrets gener"
    ) as no:
        load_keyring()

    assert text not in str(no.value)


def test_without_the_secrets_extra_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    monkeypatch.setenv(VARIABLE, generate_key())

    with pytest.raises(MissingExtra, match=r"pip install 'trax-scheduler\[secrets\]'"):
        load_keyring()


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize(
    "given",
    [
        {"token": PLAIN},
        {"user": "ada", "token": [PLAIN]},
        {"user": "ada", "token": PLAIN, "retries": "many"},
        {"user": "ada", "token": {"inner": PLAIN}},
        Node(key=SecretStr(PLAIN)),
        [PLAIN],
    ],
)
def test_a_refusal_shows_no_value_that_may_be_a_secret(given: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        codec_of(Login).encode(given)
    with pytest.raises(InvalidInput) as unread:
        codec_of(Login).decode(json.dumps(given, default=str))

    assert PLAIN not in str(refused.value) + str(unread.value)


@pytest.mark.usefixtures("key")
def test_a_refusal_shows_what_cannot_be_a_secret() -> None:
    with pytest.raises(InvalidInput, match=r"retries: .* \(got 'many'\)"):
        codec_of(Login).encode({"user": "ada", "token": PLAIN, "retries": "many"})


@pytest.mark.usefixtures("key")
def test_a_mask_is_refused_as_a_secret() -> None:
    with pytest.raises(InvalidInput, match="token: its value is hidden and unknown here; provide it again"):
        codec_of(Login).encode({"user": "ada", "token": f"{HIDDEN} /token"})


class Loose(BaseModel):
    token: SecretStr
    rest: Any = None


@pytest.mark.usefixtures("key")
def test_an_input_cannot_pretend_to_be_a_secret() -> None:
    codec = codec_of(Loose)
    sealed = json.loads(codec.encode(Loose(token=SecretStr(PLAIN))))["token"]

    with pytest.raises(InvalidInput, match="rest: has a key '\\$secret', which is reserved for secrets"):
        codec.encode(Loose(token=SecretStr("x"), rest={"$secret": "plain"}))
    with pytest.raises(SecretUnreadable, match=r"was encrypted for input\.token"):
        codec.decode(json.dumps({"token": "x", "rest": sealed}))


class Odd(BaseModel):
    word: SecretStr

    @model_serializer
    def write(self) -> dict[str, Any]:
        return {"said": self.word.get_secret_value()}


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize(
    ("declared", "value"),
    [(Odd, Odd(word=SecretStr(PLAIN))), (dict[SecretStr, int], {SecretStr(PLAIN): 1})],
    ids=["its own serializer", "a key"],
)
def test_a_secret_whose_place_is_not_known_is_refused(declared: Any, value: Any) -> None:
    with pytest.raises(InvalidInput, match="contains a secret") as refused:
        codec_of(declared).encode(value)

    assert PLAIN not in str(refused.value)


def test_a_text_is_searched_for_secrets_however_they_are_spelled() -> None:
    words = secret_words_of(
        {"a": SecretStr("hunter'2\n"), "b": SecretBytes(b"bytes-2"), "c": SecretStr("abc")}
    )

    assert (
        hide_words("x hunter'2\n, hunter'2\\n, bytes-2, abc", words) == f"x {HIDDEN}, {HIDDEN}, {HIDDEN}, abc"
    )
    assert hide_words("nothing here", frozenset()) == "nothing here"


class Named(BaseModel):
    default: SecretStr
    metadata: int = 1


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


class Circular(BaseModel):
    token: str = "x"
    loop: Any = Field(default=CIRCLE)


def test_a_field_may_be_called_anything_and_a_default_may_be_anything() -> None:
    assert codec_of(Named).holds_secrets
    assert not codec_of(Circular).holds_secrets


def test_a_secret_that_is_yes_or_no_is_not_searched_for() -> None:
    assert secret_words_of(Secret[bool](True)) == frozenset()
