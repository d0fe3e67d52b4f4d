from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trax.cli.importing.crontab import Crontab, is_system_crontab
from trax.cli.importing.foreign import Command, ImportedJob, compare, with_unique_ids
from trax.errors import DefinitionError
from trax.records.schedule import Cron

NOW = datetime(2027, 3, 20, 12, 0, 17, tzinfo=UTC)


def read(text: str, *, zone: str = "Europe/Berlin", has_users: bool = False) -> list[ImportedJob]:
    return list(Crontab(has_users, zone, NOW).read(text))


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        ("*/5 * * * * x", "*/5 * * * *"),
        ("0-59/20 8-18 * jan-dec Mon-Fri x", "0-59/20 8-18 * jan-dec Mon-Fri"),
        ("15 0 * * sunday x", "15 0 * * sun"),
        ("15 0 * * 7 x", "15 0 * * 7"),
        ("30 2 28-31 3 * x", "30 2 28-31 3 *"),
        ("0 4 29 2 * x", "0 4 29 2 *"),
        ("0 9 13 * fri x", "0 9 13 * fri"),
        ("0 9 */2 * mon x", "0 9 */2 * mon"),
        ("@daily x", "0 0 * * *"),
        ("@Weekly x", "0 0 * * 0"),
    ],
)
def test_a_line_runs_when_cron_would_run_it(line: str, expression: str) -> None:
    (one,) = compare(read(line), NOW)

    assert one.job.when == Cron(expression, "Europe/Berlin")
    assert (one.agrees, one.verdict) == (True, "10 of 10 agree")


def numbers(first: int, last: int) -> st.SearchStrategy[str]:
    single = st.integers(first, last).map(str)
    ends = st.tuples(st.integers(first, last), st.integers(first, last)).map(sorted)
    spans = ends.map(lambda pair: f"{pair[0]}-{pair[1]}")
    steps = st.tuples(st.one_of(st.just("*"), spans), st.integers(1, 9)).map(
        lambda pair: f"{pair[0]}/{pair[1]}"
    )
    return st.one_of(
        st.just("*"), st.lists(st.one_of(single, spans, steps), min_size=1, max_size=3).map(",".join)
    )


@given(st.tuples(numbers(0, 59), numbers(0, 23), numbers(1, 28), numbers(1, 12), numbers(0, 7)))
def test_any_crontab_line_has_the_same_occurrences_on_both_sides(fields: tuple[str, ...]) -> None:
    (one,) = compare(read(f"{' '.join(fields)} x", zone="UTC"), NOW)

    assert one.job.theirs == one.ours
    assert all(earlier < later for earlier, later in pairwise(one.ours))


def test_an_assignment_applies_to_the_lines_below() -> None:
    first, second = read(
        """
        # nightly
        PATH = "/bin:/usr/bin"
        0 1 * * * one
        CRON_TZ=America/New_York
        MAILTO=ops@example.com
        0 1 * * * two
        """
    )

    assert first.when == Cron("0 1 * * *", "Europe/Berlin")
    assert second.when == Cron("0 1 * * *", "America/New_York")
    assert second.input == Command("two", None, {"PATH": "/bin:/usr/bin"})


def test_text_after_a_percent_sign_is_the_input_of_the_command() -> None:
    (one,) = read(r"0 9 * * * mail -s '5\% off' ops%Hello%World")

    assert one.input == Command("mail -s '5% off' ops", "Hello\nWorld\n")


def test_a_line_of_the_system_names_its_user() -> None:
    (one,) = read("17 * * * * root run-parts /etc/cron.hourly", has_users=True)

    assert (one.external_id, one.task) == ("run-parts", "run-parts /etc/cron.hourly")
    assert "cron runs it as root; Trax runs it as the user of the worker" in one.remarks


def test_a_line_without_a_clock_time_becomes_on_demand() -> None:
    reboot, chance = compare(read("@reboot start\n0~30 2 * * * pick"), NOW)

    assert (reboot.verdict, reboot.ours) == ("on demand only", ())
    assert reboot.job.remarks == ("cron runs it at boot; runs on demand only",)
    assert chance.job.when is None
    assert "random time" in chance.job.remarks[0]


def test_two_day_fields_match_either_and_are_remarked() -> None:
    either, both = read("0 9 13 * fri x\n0 9 13 * * x")

    assert "not only if both match" in either.remarks[0]
    assert both.remarks == ()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0 25 * * * x", "hour '25' is invalid"),
        ("0 1 * *", "there is no command"),
        ("@dayly x", "did you mean '@daily'?"),
        ("*/0 * * * * x", "minute '*/0' is invalid"),
    ],
)
def test_a_line_that_cron_would_refuse_is_named(line: str, reason: str) -> None:
    with pytest.raises(DefinitionError, match="line 2 of the crontab") as refused:
        read(f"# first\n{line}")

    assert reason in str(refused.value)


def test_all_lines_that_cron_would_refuse_are_reported_at_once() -> None:
    with pytest.raises(DefinitionError) as refused:
        read("0 25 * * * x\n0 1 * * * fine\n@dayly x\n0 1 * *\n")

    lines = str(refused.value).splitlines()
    assert [line.partition(",")[0] for line in lines] == [f"line {n} of the crontab" for n in (1, 3, 4)]


@pytest.mark.parametrize("line", ["0 0 30 2 * x", "0 0 31 4,jun * x", "0 0 31 2 */2 x"])
def test_a_line_that_never_runs_is_remarked_and_the_others_are_read(line: str) -> None:
    never, fine = compare(read(f"# first\n{line}\n0 1 * * * fine"), NOW)

    assert (never.job.when, never.verdict, never.ours) == (None, "on demand only", ())
    assert never.job.remarks == ("line 2 never runs: there is no such day; runs on demand only",)
    assert fine.verdict == "10 of 10 agree"


def test_ids_are_unique_and_can_be_typed() -> None:
    found = with_unique_ids(
        read("0 1 * * * /opt/back up.sh\n0 2 * * * /opt/back up.sh\n0 3 * * * cd /srv && ./go now")
    )

    assert [one.external_id for one in found] == ["back", "back-2", "cd-srv-.-go-now"]


def test_only_what_lies_in_etc_names_users() -> None:
    from pathlib import Path

    assert is_system_crontab(Path("/etc/crontab"))
    assert is_system_crontab(Path("/etc/cron.d/backup"))
    assert not is_system_crontab(Path("/var/spool/cron/crontabs/ada"))
