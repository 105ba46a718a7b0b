"""The demo as a user meets it: real processes, a real log, a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from devtools.demo.running import QUICK, command, demo, eventually
from millrace.devtools.demo.options import DemoOptions
from millrace.log import open_log
from millrace.log.status import Status, parse_statuses
from millrace.runners.processes import is_alive
from millrace.transit.views import VIEWS

pytestmark = pytest.mark.slow


def batches(folder: Path) -> list[Status]:
    """The statuses of the job's batches so far."""
    log = open_log(DemoOptions(folder, on="local").log_url)
    try:
        return parse_statuses(log.read("status.demo", 0, 0, log.end_offsets("status.demo")[0]))
    finally:
        log.close()


def refusal(folder: Path, *words: str) -> str:
    """What a demo says that ends by itself."""
    run = subprocess.run(
        command(folder, *QUICK, *words), capture_output=True, text=True, timeout=120, cwd=folder.parent
    )
    assert (run.returncode, "Traceback" in run.stderr) == (1, False)
    return run.stderr


def test_a_demo_shows_hexagons_ends_without_a_trace_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with demo(folder, *QUICK) as first:
        first.until_map()
        assert first.cells()
        eventually(
            lambda: all(first.shows(view.name) for view in VIEWS[:4]), "every job that counts shows something"
        )
        assert f"a demo is already running in {folder}" in refusal(folder)
        assert f"port {first.port} cannot be used for the map" in refusal(
            tmp_path / "other", "--port", str(first.port)
        )
        assert (
            first.until(
                r"([\d,]+) events/s · watermark [\d.]+ s behind · [\d,]+ results/s · latency [\d.]+ s"
            )[1]
            != "0"
        )
        assert len(first.processes()) >= 4
        assert first.ends(signal.SIGINT) == 130
        assert "\x1b" not in "".join(first.lines), "plain lines where there is no terminal"
    before = batches(folder)
    with demo(folder, *QUICK) as second:
        second.until_map()
        assert second.ends(signal.SIGTERM) == 130
    after = [status.batch for status in batches(folder)]
    assert len(after) > len(before)
    assert after == list(range(len(after))), "no batch is missing or doubled"
    with demo(folder, *QUICK, "--fresh") as third:
        third.until_map()
        assert third.ends() == 130
    anew = batches(folder)[0]
    assert (anew.batch, anew.at > before[-1].at) == (0, True)


def test_parts_that_were_killed_start_again_and_the_map_goes_on(tmp_path: Path) -> None:
    with demo(tmp_path / "demo", *QUICK) as running:
        running.until_map()
        killed = {"run": "job", "ingest": "city", "serve": "server"}
        for command, name in killed.items():
            os.kill(running.part(command), signal.SIGKILL)
            running.until(rf"the {name} was ended by SIGKILL and starts again where it stopped \(1 of 3\)")
        since = time.time_ns() // 1_000_000
        eventually(lambda: running.time() > since, "the map shows newer windows")
        assert running.ends() == 130


def test_a_part_that_gives_up_ends_the_demo_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "millrace.toml").write_text("[run]\nnonsense = 1\n")
    lines = refusal(tmp_path / "demo")
    assert "ended with code 1, so the demo ends" in lines
    assert "unknown key run.nonsense = 1" in lines


def test_a_demo_that_is_killed_takes_everything_with_it(tmp_path: Path) -> None:
    with demo(tmp_path / "demo", *QUICK) as running:
        running.until("the city runs")
        there = running.processes()
        running.process.kill()
        eventually(lambda: not any(map(is_alive, there)), "no orphan is left")


@pytest.mark.spark
def test_on_spark_a_demo_shows_hexagons_and_ends_without_a_trace(tmp_path: Path) -> None:
    with demo(tmp_path / "demo", "--port", "0") as running:
        running.until("5 jobs run on Spark")
        running.until_map()
        assert running.cells()
        assert len(running.processes()) >= 6
        assert running.ends() == 130
