"""Many processes at one gate: the limits hold at every moment, by the records and by the jobs themselves."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from tests.support.crowd import Crowd
from tests.support.fleet import most_at_once, most_by_group, overtaken

if TYPE_CHECKING:
    from pathlib import Path

SELDOM = 5


def check(crowd: Crowd) -> None:
    check_that_each_ran_once(crowd)
    check_the_limits(crowd)
    check_the_order(crowd)


def check_that_each_ran_once(crowd: Crowd) -> None:
    ran = Counter((one.group, one.number) for one in crowd.ran)
    assert ran == Counter(chain(*crowd.jobs.values()))
    assert Counter(one.entry_id for one in crowd.admitted) == Counter(crowd.visible_at.keys())
    assert {one.state for one in crowd.admitted} == {"completed"}


def check_the_limits(crowd: Crowd) -> None:
    """Never more than allowed; and not by luck, since at times there were as many."""
    by_record = most_by_group((one.group, one.admitted_at, one.ended_at) for one in crowd.admitted)
    by_job = most_by_group((one.group, one.began, one.ended) for one in crowd.ran)
    assert {name: most for name, most in by_record.items() if most > crowd.groups[name]} == {}
    assert {name: most for name, most in by_job.items() if most > crowd.groups[name]} == {}
    assert most_at_once((one.admitted_at, one.ended_at) for one in crowd.admitted) == crowd.limit
    assert most_at_once((one.began, one.ended) for one in crowd.ran) <= crowd.limit
    assert any(most > 1 and by_record[name] == most for name, most in crowd.groups.items())


def check_the_order(crowd: Crowd) -> None:
    moments = [one.admitted_at for one in crowd.admitted]
    assert moments == sorted(moments)
    assert overtaken(crowd.admitted, crowd.visible_at) == []


async def test_four_schedulers_and_four_workers_admit_no_more_than_the_limit(
    postgres_url: str, tmp_path: Path
) -> None:
    crowd = Crowd(tmp_path, postgres_url, jobs=1_000, groups=20, limit=24, poll=SELDOM)

    await crowd.run(["scheduler"] * 4 + ["worker --concurrency 12"] * 4)

    check(crowd)


@pytest.mark.postgresql
@pytest.mark.parametrize("server", ["postgres_url", "newest_url"])
async def test_four_servers_in_all_roles_admit_no_more_than_the_limit(
    request: pytest.FixtureRequest, server: str, tmp_path: Path
) -> None:
    crowd = Crowd(tmp_path, request.getfixturevalue(server), jobs=500, groups=20, limit=24, poll=SELDOM)

    await crowd.run(["run --concurrency 12"] * 4)

    check(crowd)
