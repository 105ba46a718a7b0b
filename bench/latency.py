"""The latency of results: from an event to a reader of committed results, and above the floor that window and
watermark set.

Events of a city (times `scale`) are appended as they happen, with markers among them. Jobs run as usual, in a
process of their own. The floor of a result is the time of the append that moved the low watermark to where
the result is due: no system can be earlier.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench.city_flow import (
    BackgroundThread,
    CityFeeder,
    await_batch,
    log_for,
    read_statuses,
    run_in_background,
    start_run,
    topics_read_by,
)
from bench.markers import MARKERS, LatencyMarker
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode
from millrace.log.status import Status
from millrace.topics import Topic


@dataclass(frozen=True)
class Latency:
    """One job, at one volume. Times are milliseconds."""

    job: str
    scale: float
    on: str
    log: str
    n: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    above_floor_p50_ms: float | None
    above_floor_p99_ms: float | None
    phases_ms: dict[str, float | None]
    """Medians of its parts: `until_cut`, from the floor to the plan of the batch; `computing`, until its
    results were ready to commit; `committing`, until a reader had them.
    """
    load: float
    """The load average of the last minute. If it exceeds the number of cores, all figures are too high."""


def bench(
    jobs: Sequence[str], *, url: str | None = None, on: str = "local", scale: float = 1, seconds: float = 60
) -> list[Latency]:
    """Measures jobs that run together, on `url`, or on a temporary log (`kafka`: on a temporary broker)."""
    read = topics_read_by(jobs)
    with (
        tempfile.TemporaryDirectory(prefix="millrace-latency-") as temporary,
        log_for(url, folder := Path(temporary)) as (log_url, _),
    ):
        log = open_log(log_url)
        for topic in (*read.values(), *(MARKERS[job].output_topic for job in jobs)):
            log.ensure(topic)
        feeder, begins = CityFeeder(log, jobs, scale), {name: log.end_offsets(name) for name in read}
        watchers = {job: Watcher(open_log(log_url), MARKERS[job]) for job in jobs}
        name = f"latency-{uuid.uuid4().hex[:8]}"
        with (
            run_in_background(feeder, *watchers.values()),
            start_run(jobs, log_url, on, folder, name) as child,
        ):
            await_batch(log, name, child, folder)
            measured_from = time.time_ns() // 1_000_000 + 5_000
            time.sleep(seconds + 5)
            measured_until = time.time_ns() // 1_000_000
            _await_results(watchers, measured_until, child)
        load, batches = round(os.getloadavg()[0], 1), _batch_times(read_statuses(log, name, {}))
        clocks = {name: _read_clocks(log, topic, begins[name]) for name, topic in read.items()}
        log.close()
    measured = {
        job: watcher.arrivals().filter(pl.col("event").is_between(measured_from, measured_until))
        for job, watcher in watchers.items()
    }
    kind = log_url.partition(":")[0]
    figures = partial(_figures, batches=batches, scale=scale, on=on, log=kind, load=load)
    return [figures(job, measured[job], clocks[MARKERS[job].input_topic.name]) for job in jobs]


class Watcher(BackgroundThread):
    """Reads the results of a job as they are committed, and records the arrival of each marker."""

    def __init__(self, log: Log, marker: LatencyMarker) -> None:
        super().__init__()
        self._log, self._marker = log, marker
        self._start = log.end_offsets(marker.output_topic.name)
        self._found: list[pl.DataFrame] = []

    def do_work(self) -> None:
        """Reads every five milliseconds."""
        topic = self._marker.output_topic
        for partition, records in self._log.tail(
            topic.name, start=self._start, wait=lambda: not self.stop_requested.wait(0.005)
        ):
            arrived_at = time.time_ns() / 1e6
            rows = decode(topic, partition, records, panes=True).rows
            self._found.append(self._marker.find_results(rows).with_columns(came=pl.lit(arrived_at)))
        self._log.close()

    def arrivals(self) -> pl.DataFrame:
        """The arrivals so far: `event`, `complete`, `came`."""
        nothing = pl.DataFrame(schema={"event": pl.Int64, "complete": pl.Int64, "came": pl.Float64})
        return pl.concat([nothing, *(frame.cast(nothing.schema) for frame in self._found)])


def _await_results(watchers: dict[str, Watcher], upto: int, child: subprocess.Popen[bytes]) -> None:
    """Waits up to 30 s for results of markers after `upto`, so that slow ones are not left out."""
    deadline = time.monotonic() + 30
    while any(
        watcher.arrivals()["event"].max() is None or watcher.arrivals()["event"].max() < upto  # type: ignore[operator] # whole milliseconds
        for watcher in watchers.values()
    ):
        if child.poll() is not None or time.monotonic() > deadline:
            return
        time.sleep(0.2)


def _read_clocks(log: Log, topic: Topic, begins: dict[int, int]) -> list[pl.DataFrame]:
    """For each partition, its clock after each record (`clock`), and the append time of the record (`at`)."""
    found = []
    for partition, end in log.end_offsets(topic.name).items():
        records = log.read(topic.name, partition, begins.get(partition, 0), end)
        rows = decode(topic, partition, records).rows
        at = pl.DataFrame({"_off": records.offsets, "at": records.timestamps})
        clock = pl.min_horizontal("event_time", "ingestion_time").cum_max()
        found.append(
            rows.select("_off", clock=clock).join(at, on="_off", maintain_order="left").select("clock", "at")
        )
    return [frame for frame in found if frame.height]


def find_floors(complete: pl.Series, clocks: Sequence[pl.DataFrame], delay: int) -> pl.Series:
    """For each value of the low watermark, when it could be reached: the last of the partitions' first
    records that are far enough.
    """
    moments = []
    for frame in clocks:
        place = frame["clock"].search_sorted(complete + delay, side="left")
        moments.append(frame["at"].append(pl.Series([None], dtype=frame["at"].dtype)).gather(place))
    return pl.select(pl.max_horizontal(moments)).to_series()


def _batch_times(statuses_read: Sequence[Status]) -> pl.DataFrame:
    """When each batch was planned, and when its results were ready."""
    known = [(float(one.at - one.took_ms), float(one.at)) for one in statuses_read if one.took_ms is not None]
    return pl.DataFrame(known, schema={"cut": pl.Float64, "ready": pl.Float64}, orient="row").sort("ready")


def _figures(
    job: str,
    arrivals: pl.DataFrame,
    clocks: Sequence[pl.DataFrame],
    *,
    batches: pl.DataFrame,
    scale: float,
    on: str,
    log: str,
    load: float,
) -> Latency:
    with_floors = (
        arrivals.with_columns(floor=find_floors(arrivals["complete"], clocks, MARKERS[job].delay))
        .drop_nulls()
        .sort("came")
    )
    with_floors = with_floors.join_asof(
        batches, left_on="came", right_on="ready", strategy="backward", coalesce=False
    )
    above = with_floors.select(
        above=pl.col("came") - pl.col("floor"),
        until_cut=pl.col("cut") - pl.col("floor"),
        computing=pl.col("ready") - pl.col("cut"),
        committing=pl.col("came") - pl.col("ready"),
    )
    p50, p90, p99 = _quantiles((arrivals["came"] - arrivals["event"]).to_numpy(), 0.5, 0.9, 0.99)
    over50, over99 = _quantiles(above["above"].to_numpy(), 0.5, 0.99)
    phases = {name: _quantiles(above[name].drop_nulls().to_numpy(), 0.5)[0] for name in above.columns[1:]}
    return Latency(job, scale, on, log, arrivals.height, p50, p90, p99, over50, over99, phases, load)


def _quantiles(
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], *ranks: float
) -> list[float | None]:
    return (
        [round(float(value), 1) for value in np.quantile(values, ranks)]
        if len(values)
        else [None] * len(ranks)
    )
