"""Vehicle distribution, on scripted vehicles and on the real recordings,
against a computation that shares nothing with the engine.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h3
import polars as pl
import pytest

from millrace import panes
from millrace.engine.plan import Plan
from millrace.engine.source import PartitionBatch
from millrace.ingest import connector, ingest, processor
from millrace.ingest.connectors import recording_frames
from millrace.log import Log, open_log
from millrace.log.codecs.codec import Decoded
from millrace.runners import batches as feed
from millrace.runners.local import Engine
from millrace.runners.replay import replay
from millrace.stream import Job
from millrace.transit import CELL_COUNTS, POSITIONS
from millrace.transit.jobs import BUILT_IN, vehicle_distribution

SIZE, EVERY, DELAY = 30_000, 5_000, 1_000
HERE, THERE = (60.2, 24.9), (60.17, 24.94)


@dataclass(frozen=True)
class Outcome:
    """The final results of a job, and the rows it refused."""

    counts: pl.DataFrame
    """`geocell`, `window_start`, `window_end`, `count`: the last word on each."""
    late: int
    """Rows refused by at least one window."""
    missed: int
    """Places in windows that were refused."""


def cell(place: tuple[float, float], resolution: int = 9) -> int:
    return int(h3.latlng_to_cell(*place, resolution), 16)


def outcome(job: Job, batches: Iterator[tuple[list[PartitionBatch], int]], partitions: int = 4) -> Outcome:
    engine = Engine([job], slots=2, partitions={POSITIONS.name: partitions})
    results = [engine.step(pieces, now) for pieces, now in batches]
    results.append(engine.step([], results[-1].now if results else 0, end=True))
    shown = pl.concat([r.outputs[CELL_COUNTS.name] for r in results if CELL_COUNTS.name in r.outputs])
    refused = [r.late[job.name] for r in results if job.name in r.late]
    return Outcome(
        panes.latest_panes(shown, ["geocell"]),
        sum(int(frame["_rows"].fill_null(1).sum()) for frame in refused),
        sum(int((frame["missed"] * frame["_rows"].fill_null(1)).sum()) for frame in refused),
    )


def positions(*rows: tuple[str, int, tuple[float, float]]) -> Decoded:
    """Vehicle, event time and place, each received at its time."""
    columns = {
        "vehicle_id": pl.String,
        "event_time": pl.Int64,
        "latitude": pl.Float64,
        "longitude": pl.Float64,
    }
    frame = pl.DataFrame([(v, at, *place) for v, at, place in rows], schema=columns, orient="row")
    frame = frame.with_columns(
        pl.lit(None, t).alias(c) for c, t in POSITIONS.schema.items() if c not in frame.columns
    )
    frame = frame.with_columns(
        ingestion_time=pl.col("event_time"), _off=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    return Decoded(frame.select(*POSITIONS.schema, "event_time", "ingestion_time", "_off"), pl.DataFrame())


def at_end_of(window_end: int, *rows: tuple[str, int, tuple[float, float]]) -> dict[int, int]:
    piece = PartitionBatch(POSITIONS.name, 0, positions(*rows))
    counts = outcome(vehicle_distribution(idle=None), iter([([piece], 0)]), partitions=1).counts
    return {
        row["geocell"]: row["count"]
        for row in counts.filter(pl.col("window_end") == window_end).iter_rows(named=True)
    }


def test_a_vehicle_counts_where_it_was_last() -> None:
    #  window  0 |-----------------------------| 30 s
    #  a            here(3)        there(20)
    #  b                 here(7)
    rows = ("a", 3_000, HERE), ("b", 7_000, HERE), ("a", 20_000, THERE)
    assert at_end_of(30_000, *rows) == {cell(HERE): 1, cell(THERE): 1}
    assert at_end_of(20_000, *rows) == {cell(HERE): 2}


def test_the_same_message_twice_counts_once() -> None:
    assert at_end_of(30_000, ("a", 3_000, HERE), ("a", 3_000, HERE), ("b", 3_000, HERE)) == {cell(HERE): 2}


def test_messages_out_of_order_count_as_if_in_order() -> None:
    assert at_end_of(30_000, ("a", 3_900, THERE), ("a", 3_000, HERE)) == {cell(THERE): 1}


def test_a_vehicle_that_is_nowhere_keeps_its_last_place() -> None:
    nowhere = (float("nan"), 24.9)
    assert at_end_of(30_000, ("a", 3_000, HERE), ("a", 4_000, nowhere), ("b", 5_000, nowhere)) == {
        cell(HERE): 1
    }


def test_an_event_at_the_end_of_a_window_belongs_to_the_next() -> None:
    assert at_end_of(30_000, ("a", 0, HERE), ("b", 30_000, HERE)) == {cell(HERE): 1}
    assert at_end_of(35_000, ("a", 0, HERE), ("b", 30_000, HERE)) == {cell(HERE): 1}


def test_it_is_found_by_name_and_takes_parameters() -> None:
    job = BUILT_IN["vehicle-distribution"](resolution=7, window="1m", every="10s")
    assert job.name == "vehicle-distribution"
    piece = PartitionBatch(POSITIONS.name, 0, positions(("a", 3_000, HERE)))
    counts = outcome(job, iter([([piece], 0)]), partitions=1).counts
    assert counts["geocell"].unique().to_list() == [cell(HERE, 7)]
    assert counts["window_end"].to_list() == list(range(10_000, 60_001, 10_000))


def recorded(path: Path, resolution: int = 9) -> pl.DataFrame:
    """The vehicle positions of a recording, read without anything of millrace."""
    rows = []
    with gzip.open(path, "rt") as lines:
        for number, text in enumerate(lines):
            line = json.loads(text)
            position = line["payload"].get("VP")
            if position is not None and position["lat"] is not None:
                rows.append(
                    (
                        f"{position['oper']}/{position['veh']}",
                        position["tst"],
                        line["received"],
                        cell((position["lat"], position["long"]), resolution),
                        number,
                    )
                )
    frame = pl.DataFrame(rows, schema=["vehicle_id", "tst", "received", "geocell", "number"], orient="row")
    return frame.with_columns(time=pl.col("tst").str.to_datetime("%Y-%m-%dT%H:%M:%S%.3fZ").dt.epoch("ms"))


def computed(rows: pl.DataFrame, partition: dict[str, int], lateness: int) -> Outcome:
    """What the job is defined to say, in plain polars over all rows at once."""
    placed = rows.with_columns(p=pl.col("vehicle_id").replace_strict(partition)).sort("number")
    judged = placed.with_columns(w=pl.min_horizontal("time", "received").cum_max().over("p") - DELAY)
    ends = pl.concat(
        [
            judged.with_columns(end=pl.col("time") // EVERY * EVERY + EVERY * n)
            for n in range(1, SIZE // EVERY + 1)
        ]
    )
    refused = ends.filter(pl.col("w") >= pl.col("end") + lateness)
    kept = ends.filter(pl.col("w") < pl.col("end") + lateness)
    last = kept.sort("time", "number").group_by("vehicle_id", "end").last()
    counts = last.group_by("geocell", "end").agg(count=pl.len().cast(pl.Int64))
    counts = counts.select("geocell", window_start=pl.col("end") - SIZE, window_end="end", count="count")
    return Outcome(
        counts.sort("window_end", "window_start", "geocell"), refused["number"].n_unique(), len(refused)
    )


def ingested(path: Path, folder: Path) -> Log:
    log = open_log(str(folder / "log"))
    ingest(connector("recording", path=path, speed="max"), processor("hsl"), log)
    return log


def partitions_of(log: Log) -> dict[str, int]:
    ends = log.end_offsets(POSITIONS.name)
    return {
        key.decode(): p
        for p, end in ends.items()
        for key in set(log.read(POSITIONS.name, p, 0, end).keys.to_pylist())
    }


PLAN = Plan.of([vehicle_distribution()], slots=1)


def cut(log: Log, at_most: int) -> Iterator[tuple[list[PartitionBatch], int]]:
    """The log in batches, all at one moment, so that nothing counts as idle."""
    start = feed.beginning_offsets(log, [POSITIONS])
    while (end := feed.plan_batch_end(log, start, now=0, limit=at_most)).topics != start.topics:
        yield feed.read_batch(log, PLAN, start, end), 0
        start = end


HOUR, DAY = "hsl-2020-09-21.jsonl.gz", "hsl-route2510-2020-09-23.jsonl.gz"


@pytest.mark.recordings
@pytest.mark.parametrize(("name", "at_most"), [(HOUR, 10_000), (HOUR, 97), (DAY, 5_000)])
def test_from_the_log_it_equals_plain_polars(
    recordings: Path, tmp_path: Path, name: str, at_most: int
) -> None:
    log = ingested(recordings / name, tmp_path)
    expected = computed(recorded(recordings / name), partitions_of(log), lateness=60_000)
    found = outcome(vehicle_distribution(idle=None), cut(log, at_most))
    log.close()
    assert found.counts.equals(expected.counts)
    assert (found.late, found.missed) == (expected.late, expected.missed) == (0, 0)


def one_partition(path: Path, at_most: int) -> Iterator[tuple[list[PartitionBatch], int]]:
    """All vehicles in one partition, so that the backlog of one comes late behind the others."""
    rows = (
        recording_frames.read_frames(path, processor="hsl")[POSITIONS.name]
        .with_row_index("_off")
        .with_columns(pl.col("_off").cast(pl.Int64))
    )
    for part in rows.iter_slices(at_most):
        yield [PartitionBatch(POSITIONS.name, 0, Decoded(part, pl.DataFrame()))], 0


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("lateness", "late", "at_most"), [(0, 105, 5_000), (2_000, 96, 500), (10_000, 74, 97), (60_000, 0, 500)]
)
def test_rows_too_late_are_refused_each_for_exactly_the_windows_they_miss(
    recordings: Path, lateness: int, late: int, at_most: int
) -> None:
    rows = recorded(recordings / HOUR)
    expected = computed(rows, dict.fromkeys(rows["vehicle_id"], 0), lateness)
    found = outcome(
        vehicle_distribution(idle=None, lateness=lateness),
        one_partition(recordings / HOUR, at_most),
        partitions=1,
    )
    assert found.counts.equals(expected.counts)
    assert (found.late, found.missed) == (expected.late, expected.missed)
    assert found.late == late


@pytest.mark.recordings
def test_vehicles_that_share_a_cell_are_counted_together(recordings: Path) -> None:
    rows = recorded(recordings / DAY, resolution=5)
    expected = computed(rows, dict.fromkeys(rows["vehicle_id"], 0), lateness=60_000)
    found = outcome(
        vehicle_distribution(idle=None, resolution=5), one_partition(recordings / DAY, 4_000), partitions=1
    )
    assert found.counts.equals(expected.counts)
    assert found.counts["count"].max() == 5


@pytest.mark.recordings
def test_a_replay_of_the_recording_gives_the_same(recordings: Path) -> None:
    rows = recorded(recordings / HOUR)
    expected = computed(rows, dict.fromkeys(rows["vehicle_id"], 0), lateness=2_000)
    shown = replay(
        vehicle_distribution(lateness="2s"), recording_frames.read_frames(recordings / HOUR, processor="hsl")
    )
    assert panes.latest_panes(shown, ["geocell"]).equals(expected.counts)
