"""Batch is a bounded stream: a backfill gives the last words of the live run, byte for byte, and readers go
over to it without a gap.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import watermarks, windows
from millrace.errors import DefinitionError, LogError
from millrace.geo import geocell
from millrace.log import Log, open_log
from millrace.log.aliases import read_aliases, set_alias
from millrace.log.codecs.codec import decode, encode
from millrace.log.codecs.event_pb2 import Event
from millrace.runners.backfill import backfill, version_job
from millrace.runners.local import run_local
from millrace.serve.jobs import Jobs
from millrace.serve.reader import ResultReader
from millrace.serve.view_state import ViewState
from millrace.views import View
from runners.local_child import READINGS, TOTALS, settings, totals
from runners.test_local import readings


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(READINGS)
    yield log
    log.close()


def last_records(log: Log, topic: str) -> dict[tuple[Any, ...], bytes]:
    """The last record of each sensor and window, but for when it was made,
    which pane it was and whether it came late.
    """
    found: dict[tuple[Any, ...], bytes] = {}
    for partition, end in log.end_offsets(topic).items():
        records = log.read(topic, partition, 0, end)
        rows = decode(TOTALS, partition, records, panes=True).rows
        for row, value in zip(rows.iter_rows(named=True), records.values.to_pylist(), strict=True):
            event = Event.FromString(value)
            encoded = event.event_timestamp.SerializeToString() + event.details.SerializeToString()
            found[row["sensor"], row["window_start"], row["window_end"]] = row["op"].encode() + encoded
    return found


def live(log: Log, tmp_path: Path, seed: int) -> None:
    """Events come in pieces of all sizes, and the run stops and goes on, with batches of all sizes."""
    dice, start = random.Random(seed), 0
    while start < 600:
        count = dice.randrange(1, 200)
        log.append(READINGS.name, encode(READINGS, readings(start, count)))
        start += count
        chosen = settings(log.url, str(tmp_path / "state")).with_options(
            run_max_events_per_batch=dice.randrange(5, 90)
        )
        run_local([totals()], settings=chosen, until_caught_up=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_backfill_gives_the_last_words_of_the_live_run_byte_for_byte(
    log: Log, tmp_path: Path, seed: int
) -> None:
    live(log, tmp_path, seed)
    done = backfill(
        totals(),
        version="v2",
        settings=settings(log.url, str(tmp_path / "state")).with_options(run_max_events_per_batch=1_000),
    )
    assert done.topics == {TOTALS.name: "analytics.totals.v2"}
    ours, theirs = last_records(log, "analytics.totals.v2"), last_records(log, TOTALS.name)
    assert len(ours) > 20
    assert ours == theirs
    assert sum(log.end_offsets(TOTALS.name).values()) > sum(
        log.end_offsets("analytics.totals.v2").values()
    ), "live, late events corrected more often"
    assert read_aliases(log) == {TOTALS.name: "analytics.totals.v2"}


def test_the_version_goes_on_as_a_run(log: Log, tmp_path: Path) -> None:
    chosen = settings(log.url, str(tmp_path / "state"))
    log.append(READINGS.name, encode(READINGS, readings(0, 300)))
    backfill(totals(), version="v2", settings=chosen, switch=False)
    assert read_aliases(log) == {}
    log.append(READINGS.name, encode(READINGS, readings(300, 300)))
    job = version_job(totals(), "v2")
    run_local([job], settings=chosen.with_options(run_name=job.name), until_caught_up=True)
    run_local([totals()], settings=chosen, until_caught_up=True)
    assert last_records(log, "analytics.totals.v2") == last_records(log, TOTALS.name)


def test_a_backfill_over_a_file_ends_all_windows(log: Log, tmp_path: Path) -> None:
    file = tmp_path / "readings.parquet"
    readings(0, 300).write_parquet(file)
    chosen = settings(log.url, str(tmp_path / "state"))
    done = backfill(totals(), version="2024", events=file, settings=chosen)
    expected = mr.replay(totals(), readings(0, 300))
    assert done.results == {"analytics.totals.2024": len(expected)}
    with pytest.raises(DefinitionError, match="already holds results; choose another version"):
        backfill(totals(), version="2024", events=file, settings=chosen)


def test_an_alias_points_to_a_topic_that_is_there(log: Log) -> None:
    with pytest.raises(LogError, match=r"no topic 'analytics.none' to point it to"):
        set_alias(log, TOTALS.name, "analytics.none")


@dataclass
class Location:
    """A reading of a place that a map can show; the sums have the same columns."""

    place: int
    value: int


PLACES, SUMS = (
    mr.Topic("input.places", Location, key="place"),
    mr.Topic("analytics.sums", Location, key="place"),
)


def placed(start: int, count: int) -> pl.DataFrame:
    cells = pl.DataFrame({"latitude": [60.1, 60.2, 60.3, 60.4, 60.5], "longitude": [24.9] * 5}).select(
        geocell("latitude", "longitude")
    )
    names = dict(zip((f"s{n}" for n in range(5)), cells.to_series().to_list(), strict=True))
    return readings(start, count).select(
        pl.col("sensor").replace_strict(names, return_dtype=pl.Int64).alias("place"),
        "value",
        "event_time",
        "ingestion_time",
    )


def sums(factor: int) -> mr.Job:
    """The same job, its code changed by a factor."""
    rows = mr.read(PLACES, watermark=watermarks.bounded("1s", idle="1s")).with_columns(
        value=pl.col("value") * factor
    )
    return mr.Job(
        "sums",
        rows.window(windows.sliding("10s", every="5s"), lateness="20s")
        .group_by("place")
        .sum("value")
        .write(SUMS),
    )


def test_readers_go_over_without_a_gap(log: Log, tmp_path: Path) -> None:
    chosen = settings(log.url, str(tmp_path / "state"))
    log.ensure(PLACES)
    log.append(PLACES.name, encode(PLACES, placed(0, 300)))
    run_local([sums(1)], settings=chosen, until_caught_up=True)
    cells = ViewState(View("sums", SUMS, "Sums", window="10s", every="5s", key="place", values=("value",)))
    reader = ResultReader(log.url, [cells], Jobs())
    reader._discover_topics(log)
    before = cells.snapshot().rows
    assert len(before) == 5
    backfill(sums(2), version="v2", settings=chosen)
    assert cells.snapshot().rows.equals(before), "until it looks, it shows what it had"
    reader._discover_topics(log)
    after = cells.snapshot().rows
    merged = before.join(after, on="place")
    assert len(merged) == 5
    assert (merged["value_right"] == 2 * merged["value"]).all()
    log.append(PLACES.name, encode(PLACES, placed(300, 100)))
    run_local([sums(1)], settings=chosen, until_caught_up=True)
    while reader._read_topics(log):
        pass
    assert cells.snapshot().rows.equals(after), "the old version is no longer read"
    job = version_job(sums(2), "v2")
    run_local([job], settings=chosen.with_options(run_name=job.name), until_caught_up=True)
    assert reader._read_topics(log)
    assert cells.time is not None
    assert cells.time > after["window_end"].max()  # type: ignore[operator] # whole milliseconds
