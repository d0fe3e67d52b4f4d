"""Secrets are hidden by name, and in every spelling of a URL."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import pickle
import time
from typing import Any
from urllib.parse import unquote

import pytest
from pydantic_core import to_json

from trax import masking
from trax.errors import FieldError, InvalidInput, format_value
from trax.masking import (
    HIDDEN,
    MaskedSecret,
    hide_passwords_of,
    hide_secrets,
    is_secret_name,
    mask_stored,
    mask_url,
    mask_urls,
)


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "PASSWORD",
        "db_password",
        "DB_PASSWORD",
        "dbPassword",
        "dbpassword",
        "password1",
        "password_hash",
        "new-password",
        "pwd",
        "passwd",
        "passphrase",
        "secret",
        "clientSecret",
        "client_secret",
        "clientsecret",
        "WEBHOOK_SECRET",
        "secret_key_base",
        "secrets",
        "token",
        "auth-token",
        "authToken",
        "accessToken",
        "refresh_token",
        "id_token",
        "token_2",
        "access_tokens",
        "api_key",
        "apikey",
        "API-Key",
        "APIKey",
        "x_api_key",
        "X-Api-Key",
        "apiKeys",
        "private_key",
        "privateKeyPem",
        "signing_key",
        "aws_secret_access_key",
        "authorization",
        "Proxy-Authorization",
        "credentials",
        "credential",
        "db_pass",
        "bearer",
        "jwt",
        "listen_url",
        "sslpassword",
        "cookie",
        "Set-Cookie",
        "cookies",
        "pass",
        "PASS",
        "pw",
        "db_pw",
        "creds",
        "awsCreds",
        "dsn",
        "SENTRY_DSN",
        "connection_string",
        "connectionString",
        "connectionstring",
        "auth_header",
        "authHeaders",
        "session_id",
        "sessionId",
        "sessionid",
        "webhook_url",
        "slackWebhookUrl",
    ],
)
def test_a_name_with_the_word_for_a_secret_in_it_is_one(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1",
        "token_count",
        "tokenCount",
        "max_tokens",
        "tokens",
        "token_type",
        "token_url",
        "tokenizer",
        "tokenize",
        "passenger",
        "passengers",
        "passage",
        "compass",
        "bypass",
        "pass_rate",
        "boarding_pass",
        "cookie_policy",
        "session",
        "connection",
        "webhook",
        "header",
        "secretary",
        "secretion",
        "author",
        "authority",
        "authored_by",
        "monkey",
        "keyboard",
        "key",
        "primary_key",
        "public_key",
        "keys",
        "api",
        "turkey",
        "has_password",
        "password_length",
        "secret_name",
        "database_url",
        "url",
        "user",
    ],
)
def test_a_name_that_resembles_a_secret_is_not_hidden(name: str) -> None:
    assert not is_secret_name(name)


def test_values_are_hidden_by_name_at_any_depth_and_what_is_missing_stays_visible() -> None:
    value = {"user": "ada", "login": [{"dbPassword": "x", "token": None}], "clientSecret": {"a": 1}}

    assert hide_secrets(value) == {
        "user": "ada",
        "login": [{"dbPassword": HIDDEN, "token": None}],
        "clientSecret": HIDDEN,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://trax:hunter2@db/jobs", "postgresql://trax:***@db/jobs"),
        ("redis://:hunter2@db", "redis://:***@db"),
        ("amqp://trax:hun/hunter2@db//", "amqp://trax:***@db//"),
        ("https://trax:hun?hunter2@db/", "https://trax:***@db/"),
        ("https://ada@example.com:hunter2@db/", "https://ada@example.com:***@db/"),
        (
            "from http://a:hunter2@b to 'http://c:hunter2@d', ada@e",
            "from http://a:***@b to 'http://c:***@d', ada@e",
        ),
        ("https://hooks.example.com/x?token=hunter2&page=2", "https://hooks.example.com/x?token=***&page=2"),
        ("https://example.com:8080/a?b=c@d", "https://example.com:8080/a?b=c@d"),
        ("https://example.com/a:b@c", "https://example.com/a:b@c"),
        ("12:30 ada@example.com", "12:30 ada@example.com"),
    ],
)
def test_a_password_in_a_url_is_hidden_in_any_value(text: str, expected: str) -> None:
    assert hide_secrets({"where": [text]}) == {"where": [expected]}
    assert hide_secrets(expected) == expected


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://trax:hunter2@db/jobs",
        "postgresql://trax:hun ter2@db/jobs",
        "postgresql://trax:h%75nter2@db/jobs",
        "trax:hunter2@db/jobs",
        "host=db password=hunter2",
    ],
)
def test_a_message_that_repeats_a_part_of_a_url_shows_no_password(address: str) -> None:
    plain = unquote(address)
    for message in (
        f"unknown {address!r}",
        f"module {plain[:-3]!r}",
        f"file {plain.replace('//', '/')} is gone",
    ):
        masked = hide_passwords_of([address, "--limit"], message)

        assert "hunter2" not in masked
        assert "hun ter2" not in masked
        assert "h%75nter2" not in masked


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://trax:hunter2@db/jobs", "postgresql://trax:***@db/jobs"),
        (
            "postgresql+psycopg://trax:hunter2@[::1]:5432/jobs",
            "postgresql+psycopg://trax:***@[::1]:5432/jobs",
        ),
        ("postgresql://trax:hunter2@a:1,b:2/jobs", "postgresql://trax:***@a:1,b:2/jobs"),
        ("postgresql://trax@db:5432/jobs?sslmode=require", "postgresql://trax@db:5432/jobs?sslmode=require"),
        ("postgresql://db/jobs", "postgresql://db/jobs"),
        ("postgresql://trax:***@db/jobs", "postgresql://trax:***@db/jobs"),
        ("postgresql://:hunter2@db/jobs", "postgresql://:***@db/jobs"),
        ("postgresql://trax:h%40nter2@db/jobs", "postgresql://trax:***@db/jobs"),
        ("postgresql://trax:hünter2@db/jobs", "postgresql://trax:***@db/jobs"),
        ("postgresql://db/jobs?user=u&password=hunter2", "postgresql://db/jobs?user=u&password=***"),
        (
            "postgresql://u:hunter2@db/jobs?sslpassword=hunter2&sslmode=require",
            "postgresql://u:***@db/jobs?sslpassword=***&sslmode=require",
        ),
        ("postgresql://db/jobs?pass%77ord=hunter2", "postgresql://db/jobs?pass%77ord=***"),
        ("postgresql://db/jobs?password=hunter2&hunter2#hunter2", "postgresql://db/jobs?password=***"),
        ("sqlite:///trax.db", "sqlite:///trax.db"),
        ("sqlite:////srv/ada@home/trax.db", "sqlite:////srv/ada@home/trax.db"),
        ("memory://", "memory://"),
        ("host=db user=trax password=hunter2 dbname=jobs", "host=db user=trax password=*** dbname=jobs"),
        ("host=db password = 'hunter2 \\' hunter2' dbname=jobs", "host=db password = *** dbname=jobs"),
        ("password='hunter2 hunter2", "password=***"),
        ("host=db password=hunter2@db/x", "host=db password=***"),
        ("https://api.example.com/run", "https://api.example.com/run"),
        ("https://ci:hunter2@example.com/run", "https://ci:***@example.com/run"),
        (
            "https://example.com/hook?access_token=hunter2&page=2",
            "https://example.com/hook?access_token=***&page=2",
        ),
        ("https://example.com/hook?token_count=2", "https://example.com/hook?token_count=2"),
    ],
)
def test_a_url_keeps_all_but_its_secrets(address: str, expected: str) -> None:
    assert mask_url(address) == expected
    assert mask_url(expected) == expected


@pytest.mark.parametrize(
    "address",
    [
        "postgres:/trax:hunter2@db/jobs",
        "postgres:trax:hunter2@db/jobs",
        "postgresql:///trax:hunter2@db/jobs",
        "postgresql//trax:hunter2@db/jobs",
        "trax:hunter2@db/jobs",
        "//trax:hunter2@db/jobs",
        "postgresql://trax:hunter2",
        "postgresql://trax:hunter2/jobs",
        "postgresql://trax:hun@hunter2@db/jobs",
        "postgresql://trax:hun/hunter2@db/jobs",
        "postgresql://trax:hun#hunter2@db/jobs",
        "postgresql://trax:hun?hunter2@db/jobs",
        "postgresql://trax:5432?hunter2@db/jobs",
        "postgresql://trax:hun hunter2@db/jobs",
        "postgresql://trax:hun:hunter2@db/jobs",
        "postgresql://trax:hun[hunter2]@db/jobs",
        "postgresql://trax%3Ahunter2%40db/jobs",
        "postgresql://trax%3Ahunter2/jobs",
        "postgresql://trax:hunter2\N{FULLWIDTH COMMERCIAL AT}db/jobs",
        "postgresql://trax:hunter2@db/jobs?password=hunter2@x",
        "postgresql://trax:hünter@hunter2\u2603@db/jobs",
        " postgresql://trax:hunter2@db/jobs",
        "postgresql://trax:hunter2@db/jobs\n",
        "jdbc:postgresql://db/jobs?user=trax&password=hunter2",
        "postgresql://trax:hunter2@db@jobs",
        "http:/ci:hunter2@example.com",
        "ci:hunter2@example.com?token=hunter2",
    ],
)
def test_a_url_that_is_mistyped_shows_no_password_either(address: str) -> None:
    assert "hunter2" not in mask_url(address)


def test_a_refused_value_under_the_name_of_a_secret_is_not_shown() -> None:
    error = FieldError("login.dbPassword", "is too short", "hunter2")

    assert str(error) == f"login.dbPassword: is too short (got {HIDDEN})"
    assert error.value == HIDDEN


def test_a_refused_value_shows_no_secret_that_is_inside_it() -> None:
    refused = InvalidInput("train 'x'", [FieldError("", "field required", {"password": "hunter2", "n": 1})])

    assert "hunter2" not in str(refused)
    assert "'n': 1" in str(refused)


def test_a_secret_in_a_list_is_known_by_the_name_of_the_list() -> None:
    assert "hunter2" not in str(FieldError("passwords.0", "is too short", "hunter2"))


@pytest.mark.parametrize("value", [{"token": "hunter2"}, [{"a": {"pwd": "hunter2"}}], "http://a:hunter2@b"])
def test_a_value_in_a_message_shows_no_secret(value: Any) -> None:
    assert "hunter2" not in format_value(value)


def test_a_stored_secret_is_dots_that_know_what_they_stand_for() -> None:
    stored = {"token": {"$secret": "v1:a:b:c:d"}, "other": [{"$secret": "masked"}], "plain": {"$secret": 1}}

    covered = mask_stored(stored)

    assert covered == {"token": HIDDEN, "other": [HIDDEN], "plain": {"$secret": 1}}
    assert isinstance(covered["token"], MaskedSecret)
    assert pickle.loads(pickle.dumps(covered["token"])).stored == stored["token"]  # noqa: S301
    assert to_json(covered["token"]).decode() == f'"{HIDDEN}"'
    assert repr(covered["token"]) == repr(HIDDEN)


def test_a_long_name_is_judged_and_never_kept() -> None:
    kept = masking._is_known_secret.cache_info().currsize
    long = [f"{number}_{'x' * 240_000}" for number in range(20)]

    assert not any(map(is_secret_name, long))
    assert all(is_secret_name(f"{name}_password") for name in long)
    assert masking._is_known_secret.cache_info().currsize == kept


LONG = 300_000
HOSTILE_TEXTS = {
    "a scheme that never ends": "a" * LONG + " ://",
    "parts of a scheme": "a+" * (LONG // 2) + " ://",
    "many schemes": "a://" * (LONG // 4),
    "many users": "a" + "://x:" * (LONG // 5),
    "users after a host": "a://b@" + "://x:" * (LONG // 5),
    "ports": "a://b:1/" * (LONG // 8) + "@",
    "fields": "a://b?x=" + "&a;b?" * (LONG // 5),
}


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_a_long_text_is_masked_in_the_time_that_its_length_needs(text: str) -> None:
    """In quadratic time it would be minutes, for each page that shows it."""
    before = time.process_time()

    mask_urls(text)

    assert time.process_time() - before < 5
