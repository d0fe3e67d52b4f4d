from __future__ import annotations

import asyncio
import io
import json
import socket
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from tests.support import ray_echo

from trax import Refused, Submission, Trax
from trax.errors import DefinitionError, MissingExtra, TraxError
from trax.remote.ray import driver, tasks, workers
from trax.remote.ray.workers import RayWorkers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

WISHES = {name: {name: 1} for name in ("die", "hang", "fail", "refuse")}


def run(metadata_id: int, train: str = "work") -> Submission:
    return Submission(metadata_id=metadata_id, external_id=str(metadata_id), train=train)


@pytest.fixture(autouse=True)
def spec(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Ray is installed, as far as one can see."""
    made = Mock()
    monkeypatch.setattr(workers, "find_spec", made)
    return made


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> Generator[RayWorkers]:
    """The near side, with a stand-in for the process that speaks to Ray."""
    monkeypatch.setattr(workers, "PROGRAM", ray_echo.__name__)
    made = RayWorkers("jobs:app", resources=WISHES)
    yield made
    made.close()


def test_without_the_ray_extra_the_error_names_the_package(spec: Mock) -> None:
    spec.return_value = None

    with pytest.raises(MissingExtra, match=r"trax-scheduler\[ray\]"):
        RayWorkers("jobs:app")


def test_a_run_is_accepted_or_refused(near: RayWorkers) -> None:
    assert near.submit([run(1)]) == [None]
    assert near.submit([run(2, "refuse"), run(3)]) == [Refused("too much"), None]


def test_one_process_speaks_to_ray_as_long_as_all_is_well(
    near: RayWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    near.submit([run(1)])
    near.submit([run(2)])

    first, second = caplog.messages
    assert first == second


@pytest.mark.parametrize(
    ("end", "reason"),
    [("fail", "Ray rejected the request: ValueError: no"), ("die", "connection to Ray lost")],
)
def test_after_something_went_wrong_another_process_does(
    near: RayWorkers, caplog: pytest.LogCaptureFixture, end: str, reason: str
) -> None:
    near.submit([run(1)])
    with pytest.raises(TraxError, match=reason):
        near.submit([run(2, end)])
    near.submit([run(3)])

    first, second = caplog.messages
    assert first != second


def test_a_process_that_does_not_answer_is_replaced(
    near: RayWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "LEAVE_SECONDS", 0.01)
    near.submit([run(1)])
    near.timeout = timedelta(seconds=0.05)
    with pytest.raises(TraxError, match=r"Ray did not respond within 0.05 s"):
        near.submit([run(2, "hang")])
    near.timeout = timedelta(seconds=60)

    assert near.submit([run(3)]) == [None]


async def test_the_process_ends_with_the_server_that_hands_over(
    near: RayWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    async with near.lifespan(None):
        near.submit([run(1)])
    near.submit([run(2)])

    first, second = caplog.messages
    assert first != second


def test_an_error_in_the_cluster_is_logged(near: RayWorkers, caplog: pytest.LogCaptureFixture) -> None:
    near.withdraw([run(1)])

    assert caplog.messages[0].startswith("run 7 did not start in Ray: withdraw by ")


def test_an_address_without_a_listener_raises_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        made = RayWorkers("jobs:app", address=f"ray://127.0.0.1:{taken.getsockname()[1]}")

        with pytest.raises(ConnectionRefusedError):
            made.submit([run(1)])


def test_resources_that_are_no_json_are_refused_when_they_are_given() -> None:
    with pytest.raises(DefinitionError, match="resources and runtime_env must be JSON data"):
        RayWorkers("jobs:app", resources={"embed": {"scheduling_strategy": object()}})


def test_a_new_version_is_another_environment_to_ray() -> None:
    made: Any = RayWorkers("jobs:app", runtime_env={"env_vars": {"A": "1"}}, version="2.5")

    assert made._config["runtime_env"] == {"env_vars": {"A": "1", "TRAX_APP_VERSION": "2.5"}}


def test_a_version_is_a_setting_that_the_app_in_the_cluster_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = RayWorkers("jobs:app", version="2.5.1")
    for name, value in made._config["runtime_env"]["env_vars"].items():
        monkeypatch.setenv(name, value)

    assert Trax("memory://").context.settings.app_version == "2.5.1"


@pytest.mark.parametrize("version", ["", " 2", "2\n", 2, "x" * 201])
def test_a_version_that_cannot_be_a_setting_is_refused(version: Any) -> None:
    with pytest.raises(DefinitionError, match="the version of RayWorkers must be text"):
        RayWorkers("jobs:app", version=version)


class Cancelled(Exception):
    """What Ray raises for a task that was cancelled."""


class ActorDied(Exception):
    """What Ray raises when an actor is gone."""


class Cluster:
    """As much of Ray as the far side uses. A task is over when it is said to be, with a value or an error."""

    exceptions = SimpleNamespace(TaskCancelledError=Cancelled, RayActorError=ActorDied)

    def __init__(self) -> None:
        self.functions = 0
        self.asked: list[tuple[dict[str, Any], tuple[Any, ...]]] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.cancelled: list[int] = []

    def remote(self, what: Callable[..., Any]) -> Any:
        assert what is tasks.execute
        self.functions += 1
        return SimpleNamespace(options=self._options)

    async def end(self, number: int, result: Any) -> None:
        """The task with this number is over; who waits for it has noticed."""
        future = self.futures[number - 1]
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
        for _ in range(3):
            await asyncio.sleep(0)

    def cancel(self, task: asyncio.Future[Any], *, force: bool) -> None:
        assert not force
        self.cancelled.append(self.futures.index(task) + 1)

    def _options(self, **options: Any) -> Any:
        if options.get("num_gpus", 0) < 0:
            raise ValueError("num_gpus must be 0 or more")

        def remote(*arguments: Any) -> asyncio.Future[Any]:
            self.asked.append((options, arguments))
            self.futures.append(asyncio.get_running_loop().create_future())
            return self.futures[-1]

        return SimpleNamespace(remote=remote)


CONFIG: dict[str, Any] = {"app": "jobs:app", "runtime_env": {}}


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(tasks, "import_extra", Mock(return_value=made))
    return made


async def test_each_run_becomes_a_task_with_the_resources_of_its_train(ray: Cluster) -> None:
    answer = await tasks.TaskOwner().hand_over(CONFIG, [(1, {"num_gpus": 1}), (2, {}), (3, {"num_gpus": -1})])

    assert [(options.get("num_gpus"), said) for options, said in ray.asked] == [
        (1, ("jobs:app", 1)),
        (None, ("jobs:app", 2)),
    ]
    assert answer["refused"] == {
        "3": "Ray rejected the resources {'num_gpus': -1}: num_gpus must be 0 or more"
    }


async def test_all_runs_are_tasks_of_one_function_so_that_they_share_processes(ray: Cluster) -> None:
    far = tasks.TaskOwner()

    await far.hand_over(CONFIG, [(1, {}), (2, {})])
    await far.hand_over(CONFIG, [(3, {})])

    assert (len(ray.asked), ray.functions) == (3, 1)


async def test_a_run_that_waits_already_gets_no_second_task(ray: Cluster) -> None:
    far = tasks.TaskOwner()

    await far.hand_over(CONFIG, [(1, {})])
    await far.hand_over(CONFIG, [(1, {})])
    await ray.end(1, result=False)
    await far.hand_over(CONFIG, [(1, {})])

    assert len(ray.asked) == 2


async def test_failed_tasks_are_reported_once_and_cancelled_ones_never(ray: Cluster) -> None:
    far = tasks.TaskOwner()
    await far.hand_over(CONFIG, [(1, {}), (2, {}), (3, {})])

    await far.withdraw(CONFIG, [2, 9])
    await ray.end(1, ImportError("no module"))
    await ray.end(2, Cancelled())
    (problem,) = await far.next_problems(0, seconds=0)

    assert ray.cancelled == [2]
    assert (problem.metadata_id, problem.reason) == (1, "no module")
    assert await far.next_problems(0, seconds=0) == [problem], "kept until somebody has reported it"
    assert await far.next_problems(problem.number, seconds=0) == []


async def test_a_waiting_caller_gets_a_problem_as_soon_as_its_task_fails(ray: Cluster) -> None:
    far = tasks.TaskOwner()
    await far.hand_over(CONFIG, [(1, {})])
    waiting = asyncio.create_task(far.next_problems(0, seconds=600))
    await asyncio.sleep(0)

    assert not waiting.done()
    await ray.end(1, ImportError("Traceback\n  no module"))
    (problem,) = await waiting

    assert (problem.metadata_id, problem.reason) == (1, "no module")


@pytest.mark.parametrize(
    ("app", "error"), [("no_such_module:app", ImportError), (f"{__name__}:no", DefinitionError)]
)
def test_an_app_that_cannot_be_found_raises(app: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        tasks.execute(app, 1)


def test_a_failure_is_an_answer_too() -> None:
    class Broken:
        def call(self, verb: str, what: list[Any]) -> dict[str, Any]:
            raise ValueError(f"{verb} {what}")

    answers = io.StringIO()
    serve: Any = getattr(driver, "_serve")  # noqa: B009
    serve(Broken(), ['["hand_over", [1]]'], driver.LineWriter(answers))

    assert json.loads(answers.getvalue()) == {"failed": "ValueError: hand_over [1]"}


def test_local_folders_are_uploaded_when_connecting_and_tasks_get_their_address() -> None:
    """Only `ray.init` accepts a local path."""
    uploaded = {"working_dir": "gcs://package.zip"}
    ray: Any = SimpleNamespace(
        is_initialized=lambda: False,
        init=Mock(),
        exceptions=Cluster.exceptions,
        get_runtime_context=lambda: SimpleNamespace(runtime_env=uploaded),
    )
    config = {"address": "auto", "runtime_env": {"working_dir": "."}}
    cluster: Any = driver.RayCluster(ray, config)
    cluster._call_owner = Mock(return_value={"refused": {}})

    cluster.call("hand_over", [])

    assert ray.init.call_args.kwargs["runtime_env"] == {"working_dir": "."}
    assert config["runtime_env"] == uploaded


def test_each_problem_is_passed_on_once_even_if_the_actor_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ended(BaseException): ...

    monkeypatch.setattr(driver, "RETRY_SECONDS", 0)
    cluster, answers = Mock(), io.StringIO()
    cluster.load_problems.side_effect = [[(5, 1, "no module")], ActorDied(), [(6, 2, "no app")], Ended()]
    report: Any = getattr(driver, "_report_problems")  # noqa: B009

    with pytest.raises(Ended):
        report(cluster, driver.LineWriter(answers))

    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [
        {"problem": [1, "no module"]},
        {"problem": [2, "no app"]},
    ]
    assert [call.args for call in cluster.load_problems.call_args_list] == [(0,), (5,), (5,), (6,)]


def test_a_dead_task_owner_is_replaced() -> None:
    ray: Any = SimpleNamespace(is_initialized=lambda: True, exceptions=Cluster.exceptions)
    cluster: Any = driver.RayCluster(ray, CONFIG)
    cluster._call_owner = Mock(side_effect=[ActorDied(), {"refused": {}}])

    assert cluster.call("hand_over", []) == {"refused": {}}
