from __future__ import annotations

from typing import Any

import pytest

from trax.engine.submitter import LOCAL, Submitters
from trax.errors import DefinitionError
from trax.train import Train, train_of


class Remote:
    def __init__(self, name: str) -> None:
        self.name = name

    async def submit(self, batch: Any) -> None: ...

    def __repr__(self) -> str:
        return f"<{self.name}>"


def a_train(name: str = "work", **options: Any) -> Train[Any, Any]:
    def work(number: int) -> int:
        return number

    return train_of(work, name, **options)


def test_a_train_without_a_route_is_local() -> None:
    assert Submitters().build_routing([a_train()]).submitter_of("work") == LOCAL


def test_a_route_holds_for_the_names_a_train_had_before() -> None:
    submitters = Submitters()
    submitters.route("work", Remote("cluster"))

    routing = submitters.build_routing([a_train(aliases=["labour"]), a_train("other")])

    assert [routing.submitter_of(name) for name in ("work", "labour", "other")] == [
        "cluster",
        "cluster",
        LOCAL,
    ]


def test_a_train_is_exempt_under_all_the_names_it_had() -> None:
    exempt = a_train("ping", aliases=["probe"], exclude_from_max_active_jobs=True)

    assert Submitters().build_routing([exempt, a_train()]).exempt == {"ping", "probe"}


def test_a_default_gets_the_rest_also_trains_of_other_servers() -> None:
    submitters = Submitters()
    submitters.default = Remote("cluster")
    submitters.route("near", LOCAL)

    routing = submitters.build_routing([a_train("near"), a_train("far")])

    assert [routing.submitter_of(name) for name in ("near", "far", "foreign")] == [
        LOCAL,
        "cluster",
        "cluster",
    ]


def test_a_train_may_name_its_submitter() -> None:
    submitters = Submitters()
    submitters.add(Remote("cluster"))
    trains = [a_train(submitter="cluster")]

    submitters.check(trains)

    assert submitters.build_routing(trains).submitter_of("work") == "cluster"


def test_the_same_route_twice_is_harmless() -> None:
    submitters, cluster = Submitters(), Remote("cluster")
    submitters.route("work", cluster)
    submitters.route("work", "cluster")

    submitters.check([a_train(submitter="cluster")])


def test_a_train_routed_to_two_is_refused_and_both_are_named() -> None:
    submitters = Submitters()
    submitters.route("work", Remote("cluster"))
    submitters.route("work", Remote("cloud"))

    with pytest.raises(DefinitionError, match="'work' is routed to 'cluster' and 'cloud'"):
        submitters.check([a_train()])


def test_a_route_against_the_train_s_own_word_is_refused() -> None:
    submitters = Submitters()
    submitters.add(Remote("cloud"))
    submitters.route("work", Remote("cluster"))

    with pytest.raises(DefinitionError, match="'cloud' and 'cluster'"):
        submitters.check([a_train(submitter="cloud")])


def test_an_unknown_submitter_is_refused_with_the_known_ones() -> None:
    submitters = Submitters()
    submitters.add(Remote("cluster"))

    with pytest.raises(
        DefinitionError, match=r"no submitter 'clutser'; did you mean 'cluster'.*known: local, cluster"
    ):
        submitters.check([a_train(submitter="clutser")])


def test_an_unknown_default_submitter_is_refused() -> None:
    submitters = Submitters()
    submitters.default = "cluster"

    with pytest.raises(DefinitionError, match="the default submitter: there is no submitter 'cluster'"):
        submitters.check([])


def test_two_submitters_cannot_have_one_name() -> None:
    submitters = Submitters()
    submitters.add(Remote("cluster"))

    with pytest.raises(DefinitionError, match="two submitters named 'cluster'"):
        submitters.add(Remote("cluster"))


def test_the_name_of_the_local_workers_is_reserved() -> None:
    with pytest.raises(DefinitionError, match="is reserved for Trax's own workers"):
        Submitters().add(Remote(LOCAL))


def test_workers_are_needed_unless_everything_is_routed_away() -> None:
    submitters = Submitters()
    assert submitters.has_local_work([])
    assert submitters.has_local_work([a_train()])

    submitters.route("work", Remote("cluster"))
    assert not submitters.has_local_work([a_train()])
    assert submitters.has_local_work([a_train(), a_train("other")])

    submitters.default = "cluster"
    assert not submitters.has_local_work([])
    assert not submitters.has_local_work([a_train(), a_train("other")])
