"""The local runner: exactly once over stops and kills, and clear words where it cannot run."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from millrace import panes
from millrace.errors import LogUnwritable, StateInUse, StateMismatch, StateUnwritable
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode, encode
from millrace.runners.local import Hooks, run_local
from millrace.runners.replay import replay
from millrace.runners.state.folder import lock_folder
from millrace.stream import Job, Output
from runners.crashes import inject_crashes
from runners.local_child import READINGS, TOTALS, settings, totals

CHILD = Path(__file__).with_name("local_child.py")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(READINGS)
    yield log
    log.close()


def readings(start: int, count: int) -> pl.DataFrame:
    """One reading every 100 ms, some of them seconds late."""
    at = [1_000_000 + n * 100 - (n % 7 == 3) * 9_000 for n in range(start, start + count)]
    return pl.DataFrame(
        {
            "sensor": [f"s{n % 5}" for n in range(start, start + count)],
            "value": range(start, start + count),
            "event_time": at,
        }
    ).with_columns(
        pl.Series("ingestion_time", [1_000_000 + n * 100 + 50 for n in range(start, start + count)])
    )


def shown(log: Log) -> pl.DataFrame:
    """All panes in the log, as they were written."""
    return pl.concat(
        [
            decode(TOTALS, p, log.read(TOTALS.name, p, 0, end), panes=True).rows
            for p, end in log.end_offsets(TOTALS.name).items()
        ]
    )


def last_words(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return panes.latest_panes(frame.drop("ingestion_time", "_off", strict=False), ["sensor"]).rows()


def expected(log: Log) -> list[tuple[Any, ...]]:
    return [row for row in last_words(replay(totals(), READINGS, log=log.url)) if row[2] <= watermark(log)]


def watermark(log: Log) -> int:
    clocks = [
        decode(READINGS, p, log.read(READINGS.name, p, 0, end))
        .rows.select(pl.min_horizontal("event_time", "ingestion_time").max())
        .item()
        for p, end in log.end_offsets(READINGS.name).items()
    ]
    return int(min(clocks)) - 1000


def assert_exactly_once(log: Log) -> None:
    written = shown(log)
    assert written.select("sensor", "window_end", "index", "op").is_duplicated().sum() == 0, (
        "no pane is there twice"
    )
    assert last_words(written) == expected(log), "none is missing or wrong"


@pytest.mark.slow
def test_a_run_goes_on_where_the_last_one_stopped(log: Log, tmp_path: Path) -> None:
    for start in (0, 500, 1000):
        log.append(READINGS.name, encode(READINGS, readings(start, 500)))
        run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
        assert_exactly_once(log)


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_and_doubles_nothing(log: Log, tmp_path: Path) -> None:
    chance = random.Random(7)
    kills = 0
    for start in range(0, 1_200, 600):
        log.append(READINGS.name, encode(READINGS, readings(start, 600)))
        with subprocess.Popen(
            [sys.executable, str(CHILD), log.url, str(tmp_path / "state")], stderr=subprocess.DEVNULL
        ) as child:
            before = log.end_offsets(TOTALS.name) if TOTALS.name in log.list_topics() else {}
            wait_until(partial(newly_written, log, before))
            time.sleep(chance.random() * 0.05)
            child.send_signal(signal.SIGKILL)
        kills += child.returncode == -signal.SIGKILL
    run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
    assert kills == 2
    assert_exactly_once(log)


def newly_written(log: Log, before: dict[int, int]) -> bool:
    return TOTALS.name in log.list_topics() and log.end_offsets(TOTALS.name) != before


def wait_until(condition: Callable[[], bool], limit: float = 30) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.001)


@pytest.mark.parametrize("step", ["plan_batch", "commit", "commit_batch"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_any_step_of_the_commit_changes_nothing(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    log.append(READINGS.name, encode(READINGS, readings(0, 600)))
    inject_crashes(monkeypatch, step, when, lambda call: call == 3)
    with pytest.raises(MemoryError):
        run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
    run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
    assert_exactly_once(log)


@pytest.mark.slow
def test_ctrl_c_finishes_the_batch_at_hand_and_the_next_run_goes_on(log: Log, tmp_path: Path) -> None:
    log.append(READINGS.name, encode(READINGS, readings(0, 600)))
    child = subprocess.Popen(
        [sys.executable, str(CHILD), log.url, str(tmp_path / "state")], stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: TOTALS.name in log.list_topics() and sum(log.end_offsets(TOTALS.name).values()) > 0)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert errors.strip().endswith("KeyboardInterrupt")
    run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
    assert_exactly_once(log)


def test_events_that_come_while_it_runs_are_taken(log: Log, tmp_path: Path) -> None:
    results: list[int] = []
    done = threading.Event()
    hooks = Hooks(stop=done.is_set, report=lambda results_: results.append(results_.counts["read"]))
    chosen = settings(log.url, str(tmp_path / "state"))
    thread = threading.Thread(
        target=run_local, args=([totals()],), kwargs={"settings": chosen, "hooks": hooks}
    )
    thread.start()
    try:
        for start in (0, 100, 200):
            log.append(READINGS.name, encode(READINGS, readings(start, 100)))
            wait_until(partial(lambda so_far: sum(results) == so_far, start + 100))
    finally:
        done.set()
        thread.join()
    assert_exactly_once(log)


def test_a_second_run_on_the_same_state_is_refused_and_names_the_first(log: Log, tmp_path: Path) -> None:
    chosen = settings(log.url, str(tmp_path / "state"))
    with lock_folder(chosen.state.dir / chosen.run.name), pytest.raises(StateInUse, match=str(os.getpid())):
        run_local([totals()], settings=chosen, until_caught_up=True)


def test_state_of_other_jobs_is_refused_with_the_remedy(log: Log, tmp_path: Path) -> None:
    chosen = settings(log.url, str(tmp_path / "state"))
    run_local([totals()], settings=chosen, until_caught_up=True)
    with pytest.raises(StateMismatch, match=r"holds the state of totals, not of others; .*state\.dir"):
        run_local([Job("others", *map(Output, totals().outputs))], settings=chosen, until_caught_up=True)


def test_an_older_copy_of_the_state_is_refused(log: Log, tmp_path: Path) -> None:
    chosen = settings(log.url, str(tmp_path / "state"))
    log.append(READINGS.name, encode(READINGS, readings(0, 300)))
    run_local([totals()], settings=chosen, until_caught_up=True)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    log.append(READINGS.name, encode(READINGS, readings(300, 300)))
    run_local([totals()], settings=chosen, until_caught_up=True)
    with pytest.raises(StateMismatch, match="older copy"):
        run_local([totals()], settings=settings(log.url, str(tmp_path / "copy")), until_caught_up=True)
    assert_exactly_once(log)


def test_a_log_without_what_the_state_wrote_is_refused(log: Log, tmp_path: Path) -> None:
    log.append(READINGS.name, encode(READINGS, readings(0, 300)))
    run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
    other = f"embedded:{tmp_path / 'other'}"
    with pytest.raises(StateMismatch, match="results are missing"):
        run_local([totals()], settings=settings(other, str(tmp_path / "state")), until_caught_up=True)


def test_an_empty_topic_gives_an_empty_result(log: Log, tmp_path: Path) -> None:
    run_local([totals()], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
    assert sum(log.end_offsets(TOTALS.name).values()) == 0


def test_a_folder_that_cannot_be_made_is_a_clear_error(log: Log, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(StateUnwritable, match="a file is in the way"):
        run_local([totals()], settings=settings(log.url, str(in_the_way)), until_caught_up=True)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    disk = tmp_path / "tiny"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.root
def test_a_full_state_disk_is_a_clear_error_and_nothing_is_lost(
    log: Log, tmp_path: Path, tiny_disk: Path
) -> None:
    log.append(READINGS.name, encode(READINGS, readings(0, 600)))
    chosen = settings(log.url, str(tiny_disk / "state"))
    run_local([totals()], settings=chosen, until_caught_up=True)
    ballast = tiny_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    log.append(READINGS.name, encode(READINGS, readings(600, 600)))
    with pytest.raises((StateUnwritable, LogUnwritable), match=r"(?i)full|space"):
        run_local([totals()], settings=chosen, until_caught_up=True)
    ballast.unlink()
    run_local([totals()], settings=chosen, until_caught_up=True)
    assert_exactly_once(log)
