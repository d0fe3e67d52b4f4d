from __future__ import annotations

import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import pytest

from trax.errors import DefinitionError
from trax.remote.http.signing import (
    BODY_HASH,
    KEY,
    NONCE,
    SIGNATURE,
    TIMESTAMP,
    CallDenied,
    CallVerifier,
    ResponseKey,
    call_headers,
    check_body,
    keys_of,
    signature,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NOON = 1_800_000_000.0
OLD, NEW = b"the secret of last year", b"the secret of this year"
BODY = b'{"runs":[]}'


@pytest.fixture
def keeper() -> CallVerifier:
    return CallVerifier({"2026": OLD, "2027": NEW})


def call(key: str = "2027", secret: bytes = NEW, *, now: float = NOON) -> dict[str, str]:
    return call_headers(key, secret, "POST", "/jobs/take-up", BODY, now=now)


def check(keeper: CallVerifier, headers: dict[str, str], **other: Any) -> None:
    said: dict[str, Any] = {"method": "POST", "path": "/jobs/take-up", "now": NOON} | other
    keeper.verify(headers, **said)


def denied(keeper: CallVerifier, headers: dict[str, str], **other: Any) -> CallDenied:
    with pytest.raises(CallDenied) as refused:
        check(keeper, headers, **other)
    return refused.value


def test_the_signature_is_the_hmac_of_exactly_these_lines() -> None:
    """Others may write their own client, so this must not change by accident."""
    secret, empty = b"0123456789abcdef", hashlib.sha256(b"{}").hexdigest()
    lines = f"trax-2 call\nPOST\n/jobs/run\n1800000000\nabc\n{empty}"

    made = signature(secret, "trax-2 call", "POST", "/jobs/run", "1800000000", "abc", empty)

    assert made == hmac.new(secret, lines.encode(), "sha256").hexdigest()
    assert made == "3ebe5982bb1e56e5a008fa47a9570ca5f8ff538c5fae763c8e18ec180c74afef"
    answer = ResponseKey(secret, "abc")
    assert answer.headers(200, b"{}") == {
        SIGNATURE: "8606b9ca7b71d779e19dafee3a2f37eb241c52206fb14df5d8b4e53a566ca818"
    }
    assert (
        answer.sign_line(1, b"{}")
        == b'["91cdcac57911a23dde9d95991612a4ac9ece878367cb594b9b33b043ae3c1afd",{}]'
    )


def test_a_call_signed_with_any_of_the_keys_is_accepted(keeper: CallVerifier) -> None:
    check(keeper, call("2027", NEW))
    check(keeper, call("2026", OLD))


def test_a_secret_is_invalid_under_the_name_of_another_key(keeper: CallVerifier) -> None:
    assert denied(keeper, call("2027", OLD)).status == 401


def test_a_key_that_was_withdrawn_opens_nothing(keeper: CallVerifier) -> None:
    refused = denied(keeper, call("2025", OLD))

    assert (refused.status, refused.reason) == (401, "unknown key '2025'")


@pytest.mark.parametrize(
    "change",
    [
        {"method": "PUT"},
        {"path": "/jobs/execute"},
        {"path": "/other/take-up"},
    ],
)
def test_a_changed_call_is_refused(keeper: CallVerifier, change: dict[str, Any]) -> None:
    refused = denied(keeper, call(), **change)

    assert (refused.status, "invalid signature" in refused.reason) == (401, True)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (NONCE, "another"),
        (BODY_HASH, "0" * 64),
        (TIMESTAMP, str(int(NOON) + 1)),
        (SIGNATURE, "0" * 64),
        (SIGNATURE, "\u00fc"),
        (KEY, "2026"),
    ],
)
def test_a_header_that_was_changed_on_the_way_is_noticed(
    keeper: CallVerifier, header: str, value: str
) -> None:
    assert denied(keeper, {**call(), header: value}).status == 401


@pytest.mark.parametrize("header", [KEY, TIMESTAMP, NONCE, BODY_HASH, SIGNATURE])
def test_a_call_without_one_of_its_headers_is_not_signed(keeper: CallVerifier, header: str) -> None:
    headers = {name: value for name, value in call().items() if name != header}

    assert f"the call is not signed: missing {header}" in denied(keeper, headers).reason


@pytest.mark.parametrize("timestamp", ["noon", "-1", "1e9", "9" * 13, "\u0664\u0662"])
def test_a_moment_that_is_no_number_is_refused(keeper: CallVerifier, timestamp: str) -> None:
    assert denied(keeper, {**call(), TIMESTAMP: timestamp}).status == 401


@pytest.mark.parametrize(
    ("shift", "is_let_in"), [(0, True), (300, True), (-300, True), (301, False), (-301, False)]
)
def test_a_call_counts_for_five_minutes_in_both_directions(
    keeper: CallVerifier, shift: int, is_let_in: bool
) -> None:
    headers = call(now=NOON - shift)

    if is_let_in:
        check(keeper, headers)
    else:
        assert "check the clocks" in denied(keeper, headers).reason


def test_the_same_call_is_accepted_once_while_it_is_valid(keeper: CallVerifier) -> None:
    headers = call(now=NOON + 300)
    check(keeper, headers)

    for later in (0, 1, 299, 300, 600):
        refused = denied(keeper, headers, now=NOON + later)
        assert (refused.status, "replay" in refused.reason) == (409, True)
    assert denied(keeper, headers, now=NOON + 601).status == 401


def test_a_forged_call_uses_up_no_nonce(keeper: CallVerifier) -> None:
    headers = call()
    denied(keeper, {**headers, SIGNATURE: "0" * 64})

    check(keeper, headers)


def test_a_body_is_the_one_whose_hash_was_signed() -> None:
    check_body(call(), BODY)
    with pytest.raises(CallDenied, match="its hash differs from the signed one") as refused:
        check_body(call(), BODY + b" ")

    assert refused.value.status == 401


ANSWER = ResponseKey(NEW, "abc")


@pytest.mark.parametrize(
    ("key", "status", "body", "is_theirs"),
    [
        (ANSWER, 200, b"{}", True),
        (ANSWER, 202, b"{}", False),
        (ANSWER, 200, b"[]", False),
        (ResponseKey(NEW, "abd"), 200, b"{}", False),
        (ResponseKey(OLD, "abc"), 200, b"{}", False),
    ],
)
def test_an_answer_fits_one_call_one_status_and_one_body(
    key: ResponseKey, status: int, body: bytes, is_theirs: bool
) -> None:
    assert key.is_response(status, ANSWER.headers(200, b"{}"), body) is is_theirs
    assert not key.is_response(status, {}, body)


def test_a_line_fits_one_place_in_one_answer() -> None:
    line = ANSWER.sign_line(2, b'{"done":1}')

    assert ANSWER.line_text(2, line) == b'{"done":1}'
    assert json.loads(line)[1] == {"done": 1}
    for number, other in (
        (1, line),
        (3, line),
        (2, line[:-1]),
        (2, line.replace(b"1}", b"2}")),
        (2, b'{"done":1}'),
        (2, b""),
        (2, ResponseKey(NEW, "abd").sign_line(2, b'{"done":1}')),
    ):
        assert ANSWER.line_text(number, other) is None


def test_a_signature_of_a_call_is_invalid_for_a_response_or_a_line() -> None:
    headers = call()
    key = ResponseKey(NEW, headers[NONCE])

    assert not key.is_response(200, headers, BODY)
    assert key.headers(200, BODY)[SIGNATURE].encode() not in key.sign_line(200, BODY)


def test_a_full_nonce_memory_refuses_calls_until_its_nonces_expire() -> None:
    keeper = CallVerifier({"2027": NEW, "2026": OLD}, max_nonces=3)
    for _ in range(3):
        check(keeper, call())

    assert denied(keeper, call()).status == 429
    check(keeper, call("2026", OLD))
    check(keeper, call(now=NOON + 361), now=NOON + 361)


def test_a_nonce_cannot_fill_the_memory_by_its_length(keeper: CallVerifier) -> None:
    assert "nonce longer" in denied(keeper, {**call(), NONCE: "x" * 65}).reason


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: keys_of("too short"), "at least 16 characters"),
        (lambda: keys_of({}), "at least one"),
        (lambda: keys_of(None), "at least one"),
        (lambda: keys_of({"": "a secret long enough"}), "a key id must be printable ASCII text"),
        (lambda: keys_of({"k\n": "a secret long enough"}), "a key id must be printable ASCII text"),
    ],
)
def test_keys_that_cannot_work_are_refused_without_showing_a_secret(
    make: Callable[[], Any], said: str
) -> None:
    with pytest.raises(DefinitionError, match=said) as refused:
        make()

    assert "too short" not in str(refused.value)
