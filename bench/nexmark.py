"""`millrace bench nexmark`: events per second of each query of Nexmark (`examples/nexmark/`).

The same generated events lie in an embedded log, as protobuf. Each query reads its topics from the beginning
to their end on the local runner, one after the other in this process, and writes its results to that log.
What is measured is the whole run, with its opening and the end of the stream.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from bench import machine
from examples.nexmark.events import AUCTIONS, BIDS, PERSONS, SIDE, generate, side_input
from examples.nexmark.queries import JOBS
from millrace.config import Settings
from millrace.engine.sink import Results
from millrace.errors import ConfigError
from millrace.log import open_log
from millrace.log.codecs.codec import encode
from millrace.runners.local import Hooks, run_local
from millrace.stream import Job

PACE = 0.1
"""Milliseconds between events: 10,000 a second, so that 1,000,000 events are 100 s."""
APPENDED_ROWS = 50_000


@dataclass(frozen=True)
class NexmarkFigures:
    """The figures of a query: microseconds of CPU per event over all processes."""

    name: str
    events: int
    """Those that the query reads: all bids, say, and no persons."""
    results: int
    """What it writes, corrections included."""
    events_per_s: float
    cpu_us_per_event: float
    load: float
    """The load average of the last minute, this measurement included."""


def bench(
    only: Sequence[str] = (), *, events: int = 1_000_000, rows_per_batch: int = 100_000
) -> Iterator[NexmarkFigures]:
    """Yields the figures of each query, or of those named."""
    if unknown := [name for name in only if name not in JOBS]:
        raise ConfigError(f"--only {', '.join(unknown)}: there is no such query; there are {', '.join(JOBS)}")
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        settings = Settings().with_options(
            log_url=f"embedded:{folder}/log",
            state_dir=Path(folder, "state"),
            run_max_events_per_batch=rows_per_batch,
        )
        fill_log(settings, {**generate(events, pace=PACE), SIDE.name: side_input()})
        for name in only or JOBS:
            yield measure(JOBS[name], settings.with_options(run_name=name))


def fill_log(settings: Settings, frames: Mapping[str, pl.DataFrame]) -> None:
    """Writes the events to the log."""
    with closing(open_log(settings.log.url)) as log:
        for topic in (PERSONS, AUCTIONS, BIDS, SIDE):
            log.ensure(topic)
            for part in frames[topic.name].iter_slices(APPENDED_ROWS):
                log.append(topic.name, encode(topic, part))
    os.sync()  # so that the first query does not pay for what is still to be written


def measure(job: Job, settings: Settings) -> NexmarkFigures:
    """Runs one query over all events."""
    counts: dict[str, int] = {}

    def report(results: Results) -> None:
        for name in ("read", "written"):
            counts[name] = counts.get(name, 0) + results.counts.get(name, 0)

    began, spent = time.monotonic(), sum(machine.cpu_seconds(os.getpid()).values())
    run_local([job], settings=settings, until_end=True, take_over=True, hooks=Hooks(report=report))
    seconds = time.monotonic() - began
    cpu = sum(machine.cpu_seconds(os.getpid()).values()) - spent
    return NexmarkFigures(
        job.name,
        counts["read"],
        counts["written"],
        round(counts["read"] / seconds),
        round(cpu / counts["read"] * 1e6, 3),
        round(os.getloadavg()[0], 1),
    )
