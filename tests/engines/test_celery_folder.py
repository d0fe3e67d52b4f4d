"""A folder for Celery's broker: what we put into it can be read from the moment it is there."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportPrivateUsage=false
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu.transport.filesystem import Channel

from trax import Submission
from trax.remote.celery import CeleryWorkers

RUNS = [Submission(metadata_id=number, external_id=f"e{number}", train="work") for number in (7, 8)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "messages"
    made.mkdir()
    return made


@pytest.fixture
def workers(folder: Path) -> CeleryWorkers:
    app: Any = Celery("site", broker="filesystem://")
    app.conf.broker_transport_options = {
        "data_folder_in": str(folder),
        "data_folder_out": str(folder),
        "control_folder": str(folder.parent / "control"),
    }
    return CeleryWorkers(app, queue="jobs")


def messages(folder: Path) -> list[Path]:
    return list(folder.glob("*.msg"))


def test_a_message_is_not_there_before_it_is_written(
    folder: Path, workers: CeleryWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    put: Any = vars(Channel)["_put"]

    def watched(*words: Any, **more: Any) -> None:
        put(*words, **more)
        seen.append(len(messages(folder)))

    monkeypatch.setattr(Channel, "_put", watched)

    assert workers.submit(RUNS) == [None, None]

    assert seen == [0, 1]
    ids = {json.loads(one.read_text(encoding="utf-8"))["headers"]["id"] for one in messages(folder)}
    assert ids == {"e7-7", "e8-8"}  # names within a millisecond are in no order
    assert len(list(folder.iterdir())) == 2  # and nothing else


def test_a_message_that_was_written_in_part_is_never_there(
    folder: Path, workers: CeleryWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(channel: Any, queue: str, *_: Any, **__: Any) -> None:
        Path(channel.data_folder_out, f"1_x.{queue}.msg").write_text("{", encoding="utf-8")
        raise OSError("no space left")

    monkeypatch.setattr(Channel, "_put", full)

    answers = workers.submit(RUNS)

    assert [str(answer) for answer in answers] == ["no space left", "no space left"]
    assert list(folder.iterdir()) == []


def test_a_missing_folder_accepts_no_task(folder: Path, workers: CeleryWorkers) -> None:
    folder.rmdir()

    with pytest.raises(FileNotFoundError):
        workers.submit(RUNS)
