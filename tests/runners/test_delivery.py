"""What a crash does to results, by the choice of their job: nothing, doubling some, or losing some."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace.errors import DefinitionError, StateMismatch
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode, encode
from millrace.panes import Delivery
from millrace.runners.local import run_local
from runners.delivery_child import topic, totals
from runners.local_child import READINGS, settings

CHILD = Path(__file__).with_name("delivery_child.py")
EXACT, LEAST, MOST = "exactly_once", "at_least_once", "at_most_once"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    opened = open_log(f"embedded:{tmp_path / 'log'}")
    opened.ensure(READINGS)
    append(opened, 0, 600)
    return opened


def append(log: Log, start: int, end: int) -> None:
    number = pl.int_range(start, end, eager=True)
    frame = pl.DataFrame({"value": number, "event_time": number * 100, "ingestion_time": number * 100})
    log.append(
        READINGS.name, encode(READINGS, frame.with_columns(sensor=pl.format("s{}", pl.col("value") % 3)))
    )


def run(log: Log, state: Path, *deliveries: str, fault: str | None = None) -> None:
    """In a process of its own, which dies at the given place."""
    path = os.pathsep.join([str(CHILD.parents[1]), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, **({"MILLRACE_FAULT": fault} if fault else {})}
    ended = subprocess.run(
        [sys.executable, str(CHILD), log.url, str(state), *deliveries], env=env, check=False
    )
    assert ended.returncode == (-signal.SIGKILL if fault else 0)


def results(log: Log, place: int) -> Counter[Any]:
    written = topic(place)
    frames = [
        decode(written, p, log.read(written.name, p, 0, end), panes=True).rows
        for p, end in log.end_offsets(written.name).items()
    ]
    return Counter(pl.concat(frames).select("sensor", "window_end", "index", "value").rows())


@pytest.mark.slow
@pytest.mark.parametrize("place", ["computed", "delivered"])
def test_a_crash_does_to_each_job_what_its_delivery_allows(log: Log, tmp_path: Path, place: str) -> None:
    run(log, tmp_path / "state", EXACT, LEAST, MOST, fault=f"{place}:4")
    run(log, tmp_path / "state", EXACT, LEAST, MOST)
    exact, least, most = (results(log, number) for number in range(3))
    assert set(exact.values()) == {1}
    assert len(exact) > 100
    assert set(least) == set(exact), "nothing is lost"
    assert set(most.values()) == {1}, "nothing is doubled"
    assert set(most) <= set(exact)
    if place == "computed":
        assert least == exact
        assert 0 < len(exact) - len(most) <= 60, "the results of the batch are lost"
    else:
        assert most == exact
        assert 0 < (least - exact).total() <= 60, "the results of the batch are written again"


@pytest.mark.slow
@pytest.mark.parametrize("delivery", [LEAST, MOST])
def test_jobs_that_ask_for_less_commit_nothing_and_may_ask_for_more_later(
    log: Log, tmp_path: Path, delivery: Delivery
) -> None:
    chosen = settings(log.url, str(tmp_path / "state"))
    run(log, tmp_path / "state", delivery, fault="delivered:3")
    run_local([totals(0, delivery)], settings=chosen, until_caught_up=True)
    before = results(log, 0)
    assert (before.total() > len(before)) == (delivery == LEAST)
    run_local([totals(0, "exactly_once")], settings=chosen, until_caught_up=True)
    append(log, 600, 900)
    run_local([totals(0, "exactly_once")], settings=chosen, until_caught_up=True)
    assert set((results(log, 0) - before).values()) == {1}
    other = open_log(f"embedded:{tmp_path / 'other'}")
    with pytest.raises(StateMismatch, match="results are missing"):
        run_local(
            [totals(0, "exactly_once")], settings=chosen.with_options(log_url=other.url), until_caught_up=True
        )


def test_what_cannot_be_delivered_so_is_refused(log: Log, tmp_path: Path) -> None:
    with pytest.raises(
        DefinitionError,
        match=r"delivery='sometimes' is unknown; use one of 'exactly_once', 'at_least_once', 'at_most_once'",
    ):
        totals(0, "sometimes")  # type: ignore[arg-type]
    one = totals(0, "exactly_once")
    other = mr.Job("other", *(mr.stream.Output(output) for output in one.outputs), delivery="at_least_once")
    with pytest.raises(
        DefinitionError,
        match=r"written by totals-0, delivery='exactly_once', and by other, .* set the same delivery in both",
    ):
        run_local([one, other], settings=settings(log.url, str(tmp_path / "state")), until_caught_up=True)
