from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import reduce
from typing import Any, Literal, cast, get_args, get_type_hints

import pytest

from trax import Trax
from trax.engine.live_settings import LiveSettings
from trax.errors import InvalidSetting, UnknownSetting
from trax.settings import SettingKeywords, Settings
from trax.settings.settings import DurationValue


def test_the_environment_overrides_code() -> None:
    given = {"max_active_jobs": 5, "save_inputs": True}
    environment = {
        "TRAX_MAX_ACTIVE_JOBS": "50",
        "TRAX_SAVE_INPUTS": "false",
        "TRAX_DATABASE_URL": "memory://",
    }

    settings = Settings.load(given, environment)

    assert (settings.max_active_jobs, settings.save_inputs) == (50, False)


@pytest.mark.parametrize(
    "text", ["90", "90.0", "90s", "1.5 min", "1m30s", "1 min 30 s", "PT1M30S", "00:01:30"]
)
def test_a_duration_is_read_in_all_its_forms(text: str) -> None:
    settings = Settings.load({}, {"TRAX_DEFAULT_JOB_TIMEOUT": text})

    assert settings.default_job_timeout == timedelta(seconds=90)


@pytest.mark.parametrize("text", ["soon", "5 parsecs", "1h 1h", "1e3", ""])
def test_an_invalid_duration_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(InvalidSetting, match="expected a duration such as 90s, 25 min, 1h30m"):
        Settings.from_values({"default_job_timeout": text})


def test_durations_are_written_for_people_and_read_again() -> None:
    settings = Settings()

    written = settings.to_json_values(Settings.model_fields)

    assert (written["default_job_timeout"], written["heartbeat_interval"]) == ("20 min", "5 s")
    assert Settings.from_values(written) == settings


def test_none_means_no_limit() -> None:
    assert Settings.load({}, {"TRAX_MAX_ACTIVE_JOBS": "none"}).max_active_jobs is None


def test_one_interval_sets_both_loops_unless_one_is_named() -> None:
    second, minute = timedelta(seconds=1), timedelta(minutes=1)

    settings = Settings.load(
        {"polling_interval": second, "job_dispatcher_polling_interval": minute}, environment={}
    )

    assert settings.manifest_manager_polling_interval == second
    assert settings.job_dispatcher_polling_interval == minute


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("max_queued_jobs_per_cycle", 0, 1),
        ("max_concurrent_dispatch", -3, 1),
        ("max_dispatch_attempts", -1, 0),
        ("dependent_priority_boost", 99, 31),
    ],
)
def test_values_beyond_a_sensible_end_are_moved_to_it(name: str, given: int, kept: int) -> None:
    assert getattr(Settings.load({name: given}, {}), name) == kept


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_active_job": 1}, r"there is no setting 'max_active_job'; did you mean 'max_active_jobs'\?"),
        ({"max_active_jobs": -1}, r"setting 'max_active_jobs': .* \(got -1\)"),
        ({"retry_backoff_multiplier": 0.5}, "setting 'retry_backoff_multiplier'"),
        ({"manifest_manager_polling_interval": timedelta(milliseconds=1)}, "polling_interval"),
        ({"default_misfire_policy": "sometimes"}, "'fire_once_now' or 'do_nothing'"),
    ],
)
def test_an_impossible_setting_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        Settings.load(given, {})


def test_an_unknown_setting_is_one_error_with_the_nearest_name() -> None:
    ways: list[tuple[Callable[[], object], str]] = [
        (lambda: Trax("memory://", **cast("Any", {"max_active_job": 1})), "max_active_job"),
        (lambda: Settings.load({}, {"TRAX_MAX_ACTIVE_JOB": "1"}), "max_active_job"),
        (lambda: Settings().with_changes({"max_active_job": 1}), "max_active_job"),
        (lambda: LiveSettings.load({}, {}).build_rows({}, {"max_active_job": 1}), "max_active_job"),
        (lambda: LiveSettings.load({}, {}).rows_without({}, ["max_active_job"]), "max_active_job"),
    ]
    for set_it, name in ways:
        with pytest.raises(UnknownSetting, match=r"(?i)did you mean '\w*max_active_jobs'\?$") as caught:
            set_it()
        assert isinstance(caught.value, LookupError)
        assert list(caught.value.reasons) == [name]


def test_variables_of_other_programs_are_left_alone() -> None:
    environment = {
        "TRAX_SERVICE_HOST": "10.0.0.1",
        "TRAX_PORT_80_TCP": "80",
        "TRAX_WEB_USERS": "",
        "PATH": "/",
    }

    assert Settings.load({}, environment) == Settings.load({}, {})


def test_an_update_is_checked_like_the_whole() -> None:
    settings = Settings.load({}, {})

    assert settings.with_changes({"max_active_jobs": 50}).max_active_jobs == 50
    with pytest.raises(InvalidSetting):
        settings.with_changes({"max_active_jobs": "many"})


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"worker_lost_after \(20 s\) must be longer than heartbeat"):
        Settings.load({"heartbeat_interval": timedelta(seconds=20)}, {})


def test_names_in_the_environment_are_parted_by_commas() -> None:
    settings = Settings.load({}, {"TRAX_METADATA_CLEANUP_TRAINS": "sync, load"})

    assert settings.metadata_cleanup_trains == ("sync", "load")
    assert Settings.load({}, {"TRAX_METADATA_CLEANUP_TRAINS": ""}).metadata_cleanup_trains == ()


def test_origins_name_the_source_of_a_setting() -> None:
    given = {"polling_interval": timedelta(seconds=1), "max_active_jobs": 5}

    origins = Settings.origins(given, {"TRAX_MAX_ACTIVE_JOBS": "50"})

    assert origins["max_active_jobs"] == "environment"
    assert origins["job_dispatcher_polling_interval"] == "code"
    assert origins["save_inputs"] == "default"
    assert origins.keys() == Settings.model_fields.keys()


def test_an_invalid_stored_value_does_not_invalidate_the_others() -> None:
    rows = {
        "max_active_jobs": 50,
        "gone_since": True,
        "retry_backoff_multiplier": 0.5,
        "heartbeat_interval": 30,
    }

    settings, refused = Settings.load({}, {}).with_overrides(rows)

    assert settings == Settings.load({"max_active_jobs": 50}, {})
    assert refused.keys() == {"gone_since", "retry_backoff_multiplier", "heartbeat_interval"}
    assert refused["gone_since"] == "there is no setting 'gone_since'"
    assert "it must be from 1 to 1000 (got 0.5)" in refused["retry_backoff_multiplier"]


def test_stored_values_that_depend_on_each_other_are_applied_together() -> None:
    rows = {"heartbeat_interval": 30, "worker_lost_after": 90, "max_active_jobs": "many"}

    settings, refused = Settings.load({}, {}).with_overrides(rows)

    assert settings.heartbeat_interval == timedelta(seconds=30)
    assert refused.keys() == {"max_active_jobs"}


def test_stored_values_are_read_back_unchanged() -> None:
    settings = Settings.load(
        {
            "max_active_jobs": None,
            "max_retry_delay": timedelta(milliseconds=1500),
            "metadata_cleanup_trains": ["a"],
        },
        {},
    )

    stored = settings.to_json_values(name for name in Settings.model_fields if not Settings.is_fixed(name))

    assert Settings.load({}, {}).with_overrides(stored) == (settings, {})


def test_every_setting_has_a_description() -> None:
    assert [name for name in Settings.model_fields if not Settings.description(name)] == []


def test_the_keywords_of_an_app_are_its_settings_with_their_types() -> None:
    accepted: dict[Any, Any] = {
        timedelta: DurationValue,
        tuple[str, ...]: Iterable[str],
        dict[str, str]: Mapping[str, str] | str,
    }
    levels = Literal["trace", "debug", "info", "information", "warning", "error", "critical"]
    declared = get_type_hints(Settings)
    keywords = get_type_hints(SettingKeywords)

    assert keywords.keys() - Settings.model_fields == {"polling_interval"}
    for name in Settings.model_fields:
        kinds = get_args(declared[name]) if type(None) in get_args(declared[name]) else (declared[name],)
        expected = reduce(lambda one, other: one | other, [accepted.get(kind, kind) for kind in kinds])
        if name == "capture_logs":
            expected = levels | None
        assert keywords[name] == expected, name
