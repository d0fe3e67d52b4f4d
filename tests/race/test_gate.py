"""Many processes at one gate: the limits hold at every moment, by the records and by the jobs themselves."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from tests.support.fleet import most_at_once, most_by_group, overtaken
from tests.support.gate_load import GateLoad

if TYPE_CHECKING:
    from pathlib import Path

SELDOM = 5


def check(load: GateLoad) -> None:
    check_that_each_ran_once(load)
    check_the_limits(load)
    check_the_order(load)


def check_that_each_ran_once(load: GateLoad) -> None:
    ran = Counter((one.group, one.number) for one in load.ran)
    assert ran == Counter(chain(*load.jobs.values()))
    assert Counter(one.entry_id for one in load.admitted) == Counter(load.visible_at.keys())
    assert {one.state for one in load.admitted} == {"completed"}


def check_the_limits(load: GateLoad) -> None:
    """Never more than allowed; and not by luck, since at times there were as many."""
    by_record = most_by_group((one.group, one.admitted_at, one.ended_at) for one in load.admitted)
    by_job = most_by_group((one.group, one.began, one.ended) for one in load.ran)
    assert {name: most for name, most in by_record.items() if most > load.groups[name]} == {}
    assert {name: most for name, most in by_job.items() if most > load.groups[name]} == {}
    assert most_at_once((one.admitted_at, one.ended_at) for one in load.admitted) == load.limit
    assert most_at_once((one.began, one.ended) for one in load.ran) <= load.limit
    assert any(most > 1 and by_record[name] == most for name, most in load.groups.items())


def check_the_order(load: GateLoad) -> None:
    moments = [one.admitted_at for one in load.admitted]
    assert moments == sorted(moments)
    assert overtaken(load.admitted, load.visible_at) == []


async def test_four_schedulers_and_four_workers_admit_no_more_than_the_limit(
    postgres_url: str, tmp_path: Path
) -> None:
    load = GateLoad(tmp_path, postgres_url, jobs=1_000, groups=20, limit=24, poll=SELDOM)

    await load.run(["scheduler"] * 4 + ["worker --concurrency 12"] * 4)

    check(load)


@pytest.mark.postgresql
@pytest.mark.parametrize("server", ["postgres_url", "newest_url"])
async def test_four_servers_in_all_roles_admit_no_more_than_the_limit(
    request: pytest.FixtureRequest, server: str, tmp_path: Path
) -> None:
    load = GateLoad(tmp_path, request.getfixturevalue(server), jobs=500, groups=20, limit=24, poll=SELDOM)

    await load.run(["run --concurrency 12"] * 4)

    check(load)
