from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from trax.cli import main

TRAX = Path(sys.executable).with_name("trax")
JOBS = """
from trax import Trax, cron

app = Trax()

@app.train
def extract(shop: str) -> None:
    raise AssertionError(shop)

@app.train
def load(shop: str) -> None:
    raise AssertionError(shop)

app.group("etl", max_active_jobs=1)
for shop in ("berlin", "bremen"):
    chain = app.schedule(extract, f"extract-{shop}", shop, cron("0 2 * * *"), group="etl")
    chain.then_include(load, f"load-{shop}", shop, group="etl")
"""
GIVEN = ("--from", "2027-03-01", "--days", "2", "--seed", "7", "--duration", "extract=10m")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def simulate(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "jobs.py:app", *GIVEN, *words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_a_simulation_shows_run_times_delays_and_full_groups(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = simulate(capsys)

    assert code == 0
    assert out.startswith("Simulated 2 days from 2027-03-01 00:00 UTC with seed 7: 8 runs on 1 server with ")
    assert "\nextract\tgiven\t10 min\t10 min\t0.0%\n" in out
    assert "last 30 days: load. Their runs are assumed to take 1 min" in out
    assert "\nextract-bremen\t2\t01 Mar 02:10:00\t02 Mar 02:20:00\t10 min\t10 min\t10 min\t0\t0\t0\n" in out
    assert "\netl\t1\t1\t1.5%\n" in out
    assert "\nMon 2027-03-01\t4\t0\t01 Mar 02:22:00\textract-bremen\t22 min\n" in out
    assert not (folder / "trax.db").exists()


@pytest.mark.usefixtures("folder")
def test_json_has_all_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = simulate(capsys, "--json", "--failures", "load=100%")

    told = json.loads(out)
    by_name = {each["manifest"]: each for each in told["manifests"]}
    assert (code, told["seed"], told["resolution"]) == (0, 7, "1 s")
    assert told["trains"]["load"] == {
        "source": "default",
        "sampled_runs": 0,
        "mean": "1 min",
        "median": "1 min",
        "failure_rate": 1.0,
    }
    assert (by_name["load-berlin"]["failures"], by_name["load-berlin"]["dead_letters"]) == (3, 1)
    assert [day["day"] for day in told["days"]] == ["2027-03-01", "2027-03-02"]


@pytest.mark.usefixtures("folder")
def test_two_settings_are_compared_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = simulate(capsys, "--group", "etl=2", "--compare")
    _, as_json, _ = simulate(capsys, "--group", "etl=2", "--compare", "--json")

    assert "\nWithout → with etl=2\n" in out
    assert "\netl\t1 → 2\t1 → 2\t1.5% → 0.8%\n" in out
    assert "\nextract-bremen\t2\t22 min → 11 min\t" in out
    told = json.loads(as_json)
    assert [told[which]["groups"][1]["peak"] for which in ("without", "with")] == [1, 2]


@pytest.mark.usefixtures("folder")
def test_a_chart_shows_every_run_of_a_day(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = simulate(capsys, "--svg", "day.svg", "--svg-day", "2027-03-02")

    drawn = ET.parse("day.svg").getroot()  # noqa: S314 - our own
    bars = drawn.findall("{http://www.w3.org/2000/svg}g[@class='run']")
    assert err == "trax: wrote day.svg: the runs of 2027-03-02\n"
    assert len(bars) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--duration", "extrakt=1m"), "no train is registered as 'extrakt'; did you mean 'extract'?"),
        (("--failures", "nope=1%"), "no train is registered as 'nope'"),
        (("--group", "elt=1"), "the app has no group 'elt'; did you mean 'etl'?"),
        (
            ("--set", "max_active_job=1"),
            "there is no setting 'max_active_job'; did you mean 'max_active_jobs'?",
        ),
        (("--set", "max_active_jobs=-1"), "max_active_jobs"),
        (("--duration", "extract"), "Invalid --duration 'extract': give NAME=VALUE."),
        (("--duration", "extract=soon"), "Invalid --duration 'soon': expected a duration such as"),
        (("--failures", "extract=2"), "Invalid --failures '2': give a share such as 5%."),
        (("--group", "etl=few"), "Invalid --group 'few': give a number, or none for no limit."),
        (("--compare",), "Nothing to compare: give --set or --group."),
        (("--svg", "no/such/folder/day.svg"), "cannot be written: No such file or directory"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_simulation_of_unknown_names_or_bad_values_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = simulate(capsys, *words)

    assert (code != 0, out) == (True, "")
    assert said in err


def test_the_same_seed_gives_the_same_result_in_every_process(folder: Path) -> None:
    words = [TRAX, "simulate", "jobs.py:app", *GIVEN, "--failures", "load=50%", "--json"]

    said = [
        subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": number},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for number in ("1", "2")
    ]

    assert said[0] == said[1]
    assert '"failures": 1' in said[0] or '"failures": 2' in said[0]
