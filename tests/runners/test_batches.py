"""Which part of the log a batch takes: a partition that is far ahead waits,
so that what it brings does not fill the memory.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import millrace as mr
from millrace import watermarks, windows
from millrace.config import Settings
from millrace.engine.progress import PartitionWatermark, WatermarkHold, find_hold
from millrace.log import Log, open_log
from millrace.log.codecs.codec import encode
from millrace.runners import batches
from millrace.runners.batches import Offsets, WatermarkAlignment
from millrace.runners.local import Engine, Hooks, run_local
from millrace.runners.replay import replay
from millrace.runners.spark.watermark_file import read_alignment, write_watermarks

MINUTE = 60_000


@dataclass
class Ride:
    line: str
    riders: int


RIDES = mr.Topic("input.rides", Ride, key="line", partitions=3)
TOTALS = mr.Topic("analytics.totals", Ride, key="line")


@dataclass
class Ends:
    at: dict[int, int]

    def end_offsets(self, topic: str) -> dict[int, int]:
        return self.at

    def identity(self, topic: str) -> str | None:
        return None


def job(idle: str | None = None) -> mr.Job:
    rides = mr.read(RIDES, watermark=watermarks.bounded(0, idle=idle)).window(windows.fixed("1m"))
    return mr.Job("totals", rides.group_by("line").sum("riders").write(TOTALS))


def taken(pace: WatermarkAlignment, ends: dict[int, int], **more: Any) -> dict[int, int]:
    return batches.plan_batch_end(
        Ends(ends), Offsets({"t": dict.fromkeys(ends, 0)}, 0), now=0, alignment=pace, **more
    ).topics["t"]


def reaches(*marks: int | None) -> list[PartitionWatermark]:
    return [PartitionWatermark("t", partition, mark) for partition, mark in enumerate(marks)]


def test_a_partition_far_ahead_is_left_alone_and_the_others_have_the_batch() -> None:
    pace = WatermarkAlignment([reaches(100, 5_000, 1_100)], 1_000)
    assert taken(pace, {0: 50, 1: 50, 2: 50}) == {0: 50, 1: 0, 2: 50}
    assert taken(pace, {0: 50, 1: 50, 2: 50}, limit=20) == {0: 10, 1: 0, 2: 10}


def test_a_partition_with_nothing_to_bring_holds_nobody_up() -> None:
    assert taken(WatermarkAlignment([reaches(100, 5_000, None)], 1_000), {0: 0, 1: 50, 2: 50}) == {
        0: 0,
        1: 50,
        2: 50,
    }


def test_operators_of_their_own_do_not_wait_for_each_other() -> None:
    apart = WatermarkAlignment(
        [[PartitionWatermark("t", 0, 100)], [PartitionWatermark("t", 1, 5_000)]], 1_000
    )
    assert taken(apart, {0: 50, 1: 50}) == {0: 50, 1: 50}


def test_operators_that_share_a_partition_must_agree() -> None:
    apart = WatermarkAlignment(
        [
            [PartitionWatermark("t", 0, 100), PartitionWatermark("t", 1, 5_000)],
            [PartitionWatermark("t", 1, 5_000)],
        ],
        1_000,
    )
    assert taken(apart, {0: 50, 1: 50}) == {0: 50, 1: 50}


def test_whatever_the_pace_something_is_read() -> None:
    for marks in ((0, 10**6, 10**9), (10**9, 10**9 + 5_000, 10**9), (None, None, 7)):
        assert (
            sum(
                taken(
                    WatermarkAlignment([reaches(*marks), reaches(*marks[::-1])], 0), {0: 5, 1: 5, 2: 5}
                ).values()
            )
            > 0
        )


def test_the_pace_survives_the_way_between_processes(tmp_path: Path) -> None:
    assert read_alignment(tmp_path / "reaches.json", 5) == WatermarkAlignment()
    write_watermarks(tmp_path / "reaches.json", {"job/a": reaches(1, None)})
    assert read_alignment(tmp_path / "reaches.json", 5) == WatermarkAlignment([reaches(1, None)], 5)


def fill(log: Log) -> None:
    """An hour in one partition, and a minute in another, of as many events each; the third is empty."""
    log.ensure(RIDES)
    for partition, span in ((0, 60 * MINUTE), (1, MINUTE)):
        at = np.linspace(0, span, 3_000, dtype=np.int64)
        rows = pl.DataFrame(
            {"line": [f"{partition}-{n % 5}" for n in range(3_000)], "riders": 1, "event_time": at}
        )
        outgoing = encode(RIDES, rows, ingestion_time=10**12)
        log.append(RIDES.name, replace(outgoing, partitions=np.full(3_000, partition, np.int32)))


def most_kept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After each batch, how many partials the state holds."""
    kept: list[int] = []
    step = Engine.step

    def counted(self: Engine, *args: Any, **more: Any) -> Any:
        results = step(self, *args, **more)
        kept.append(sum(table.rows for state in self.states.values() for table in state.tables.values()))
        return results

    monkeypatch.setattr(Engine, "step", counted)
    return kept


@pytest.mark.slow
def test_what_is_kept_stays_small_and_the_results_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    fill(log)
    kept = most_kept(monkeypatch)
    shown = {}
    for ahead in ("1m", "100d"):
        kept.clear()
        settings = Settings().with_options(
            log_url=log.url,
            state_dir=str(tmp_path / ahead),
            run_max_events_per_batch=100,
            run_max_ahead=ahead,
            run_name=f"ahead-{ahead}",
        )
        run_local([job(idle="1ms")], settings=settings, until_caught_up=True, hooks=Hooks(), take_over=True)
        shown[ahead] = max(kept)
    assert shown["1m"] * 5 < shown["100d"], shown
    panes = replay(job(), RIDES, log=log.url, batch=100)
    assert panes["riders"].sum() == 6_000
    log.close()


def test_a_partition_without_events_does_not_hold_the_watermark_of_a_run_that_is_to_catch_up(
    tmp_path: Path,
) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    fill(log)
    reports: list[Any] = []
    settings = Settings().with_options(
        log_url=log.url, state_dir=str(tmp_path / "state"), run_max_events_per_batch=500, run_max_ahead="1m"
    )
    run_local([job()], settings=settings, until_caught_up=True, hooks=Hooks(report=reports.append))
    assert sum(results.counts["read"] for results in reports) == 6_000
    assert reports[-1].holds == {"totals/aggregation-1": WatermarkHold("input.rides", 1, 3_540_000)}, (
        "not partition 2, which is empty"
    )
    log.close()


def test_what_holds_the_watermark_back_and_by_how_much() -> None:
    assert find_hold(reaches(100, 250, 900)) == WatermarkHold("t", 0, 150)
    assert find_hold(reaches(100, None, 900)) == WatermarkHold("t", 1, None)
    assert find_hold(reaches(100, 100)) is None
    assert find_hold(reaches(100)) is None
    assert find_hold([*reaches(100, 300), PartitionWatermark("t", 2, 50, is_idle=True)]) == WatermarkHold(
        "t", 0, 200
    )
    assert find_hold(
        [PartitionWatermark("t", 0, 100), PartitionWatermark("t", 1, 700, is_idle=True)]
    ) == WatermarkHold("t", 0, 600)
    assert find_hold([PartitionWatermark("t", 0, 100, is_idle=True)]) is None
