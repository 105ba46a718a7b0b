"""`millrace bench sustained`: whether jobs keep up with a steady flow of events, and whether memory stays
constant.

This process appends the events of a city, times `scale`. Jobs run as usual, in processes of their own. A
sample every few seconds records how far they are behind, and the memory of their processes and of the broker.
"""

from __future__ import annotations

import csv
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from bench import machine, plot
from bench.city_flow import (
    VOLUME,
    CityFeeder,
    await_batch,
    log_for,
    read_statuses,
    run_in_background,
    start_run,
    topics_read_by,
)
from millrace.errors import RunFailed
from millrace.log import Log, open_log
from millrace.log.status import Status, status_topic

EVERY = 5.0
"""Seconds between two samples."""
SETTLES = 30.0
"""Seconds after the first batch that are not measured.
Jobs catch up in them with what came while they started.
"""


@dataclass(frozen=True)
class Sample:
    """One sample."""

    second: float
    behind: float
    """Seconds of events that are in the log and in no complete batch."""
    memory: dict[str, float]
    """Megabytes by kind of process."""


@dataclass(frozen=True)
class Sustained:
    """The figures of the whole time.
    The first quarter is the warm-up, and is left out where quarters are compared.
    """

    jobs: str
    scale: float
    on: str
    log: str
    seconds: float
    events_per_s: float
    """Events read per second."""
    batches: int
    batch_ms: float
    """The median."""
    behind_s_p50: float
    behind_s_p99: float
    behind_s_last: float
    """The median of the last quarter. It is large if jobs do not keep up."""
    mb_second: float
    """All processes except this one, the median of the second quarter."""
    mb_last: float
    growth: dict[str, float]
    """The growth of memory from the second to the last quarter, by kind of process and for `all`."""
    cores: dict[str, float]
    """How many cores each kind of process kept busy; `feeder` is this one."""
    load: float
    samples: list[Sample] = field(default_factory=list, repr=False)


def bench(
    jobs: Sequence[str],
    *,
    url: str | None = None,
    on: str = "spark",
    scale: float = 16,
    seconds: float = 300,
    progress: Callable[[float], None] = lambda _: None,
) -> Sustained:
    """Measures jobs that run together, on `url`, or on a temporary log (`kafka`: on a temporary broker)."""
    read = topics_read_by(jobs)
    name = f"sustained-{uuid.uuid4().hex[:8]}"
    with (
        tempfile.TemporaryDirectory(prefix="millrace-sustained-") as temporary,
        log_for(url, folder := Path(temporary)) as (log_url, brokers),
        closing(open_log(log_url)) as log,
        closing(open_log(log_url)) as feeder_log,
    ):
        for topic in read.values():
            log.ensure(topic)
        with (
            run_in_background(feeder := CityFeeder(feeder_log, jobs, scale)),
            start_run(jobs, log_url, on, folder, name) as child,
        ):
            await_batch(log, name, child, folder)
            observer = RunObserver(log, name, tuple(read), child, brokers, VOLUME * scale)
            _wait_until(time.monotonic() + SETTLES, feeder, child, folder)
            observer.start_measuring()
            started_at = time.monotonic()
            while (elapsed := time.monotonic() - started_at) < seconds:
                _wait_until(min(time.monotonic() + EVERY, started_at + seconds), feeder, child, folder)
                observer.take_sample(time.monotonic() - started_at)
                progress(elapsed / seconds)
            return observer.figures(
                jobs,
                scale=scale,
                on=on,
                kind=log_url.partition(":")[0],
                seconds=time.monotonic() - started_at,
            )


def _wait_until(moment: float, feeder: CityFeeder, child: subprocess.Popen[bytes], folder: Path) -> None:
    """Waits, and raises if the feeder or the run ends."""
    while (left := moment - time.monotonic()) > 0:
        if feeder.problem is not None:
            raise feeder.problem
        if child.poll() is not None:
            output = (folder / "run.log").read_text(errors="replace").strip()
            raise RunFailed(f"the run ended by itself: {output[-500:]}")
        time.sleep(min(left, 0.2))


class RunObserver:
    """Takes samples of a run."""

    def __init__(
        self,
        log: Log,
        name: str,
        topics: tuple[str, ...],
        child: subprocess.Popen[bytes],
        brokers: tuple[int, ...],
        rate: float,
    ) -> None:
        self._log, self._name, self._topics, self._child, self._brokers, self._rate = (
            log,
            name,
            topics,
            child,
            brokers,
            rate,
        )
        self._samples: list[Sample] = []
        self._batches: list[Status] = []
        self._status_ends: Mapping[int, int] = {}
        self._cpu_at_start: dict[str, float] = {}

    def start_measuring(self) -> None:
        """Starts the measurement here."""
        self._status_ends = self._log.end_offsets(status_topic(self._name))
        self._batches = read_statuses(
            self._log, self._name, {part: end - 1 for part, end in self._status_ends.items() if end}
        )[-1:]
        self._cpu_at_start = self._measure_cpu()

    def take_sample(self, second: float) -> None:
        """Adds a sample."""
        ends = self._log.end_offsets(status_topic(self._name))
        self._batches += read_statuses(self._log, self._name, self._status_ends)
        self._status_ends = ends
        log_size = sum(sum(self._log.end_offsets(topic).values()) for topic in self._topics)
        behind = log_size - sum(self._batches[-1].reached.get(topic, 0) for topic in self._topics)
        memory = machine.memory_by_kind(self._child.pid)
        memory |= {"broker": sum(machine.memory_mb(pid) for pid in self._brokers)} if self._brokers else {}
        self._samples.append(
            Sample(
                round(second, 1),
                round(behind / self._rate, 2),
                {kind: round(size, 1) for kind, size in memory.items()},
            )
        )

    def figures(self, jobs: Sequence[str], *, scale: float, on: str, kind: str, seconds: float) -> Sustained:
        """The figures of all samples."""
        batches, spent = self._batches[1:], self._measure_cpu()
        behind = [sample.behind for sample in self._samples]
        quarter = max(1, len(self._samples) // 4)
        early, late = self._samples[quarter : 2 * quarter] or self._samples, self._samples[-quarter:]
        totals = [_median_memory(part) for part in (early, late)]
        return Sustained(
            " ".join(jobs),
            scale,
            on,
            kind,
            round(seconds),
            round(sum(status.read for status in batches) / seconds),
            len(batches),
            round(median(status.took_ms for status in batches if status.took_ms is not None), 1),
            round(float(np.quantile(behind, 0.5)), 2),
            round(float(np.quantile(behind, 0.99)), 2),
            round(median(sample.behind for sample in late), 2),
            round(totals[0]["all"]),
            round(totals[1]["all"]),
            {name: round(totals[1][name] / size - 1, 3) for name, size in totals[0].items() if size},
            {
                name: round((after - self._cpu_at_start.get(name, 0.0)) / seconds, 2)
                for name, after in spent.items()
            },
            round(os.getloadavg()[0], 1),
            self._samples,
        )

    def _measure_cpu(self) -> dict[str, float]:
        spent = machine.cpu_seconds(self._child.pid)
        if self._brokers:
            spent["broker"] = sum(sum(machine.cpu_seconds(pid).values()) for pid in self._brokers)
        return spent | {"feeder": time.process_time()}


def _median_memory(samples: Sequence[Sample]) -> dict[str, float]:
    kinds = {kind for sample in samples for kind in sample.memory}
    parts = {kind: median(sample.memory.get(kind, 0.0) for sample in samples) for kind in sorted(kinds)}
    return {"all": median(sum(sample.memory.values()) for sample in samples)} | parts


def write_samples(found: Sustained, out: Path) -> list[Path]:
    """Writes the samples as CSV, and memory as SVG."""
    out.mkdir(parents=True, exist_ok=True)
    kinds = sorted({kind for sample in found.samples for kind, size in sample.memory.items() if size})
    stem = f"sustained-{found.on}-{found.log}-x{found.scale:g}"
    with (out / f"{stem}.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["second", "behind_s", *kinds])
        table.writerows(
            [sample.second, sample.behind, *(sample.memory.get(kind, 0) for kind in kinds)]
            for sample in found.samples
        )
    series = {"all": [(sample.second / 60, sum(sample.memory.values())) for sample in found.samples]}
    series |= {
        kind: [(sample.second / 60, sample.memory.get(kind, 0.0)) for sample in found.samples]
        for kind in kinds
    }
    title = (
        f"Memory at ×{found.scale:g}, {found.events_per_s:,.0f} events/s, runner {found.on}, log {found.log}"
    )
    (out / f"{stem}.svg").write_text(
        plot.draw_lines(title, series, across="minutes", along="megabytes"), encoding="utf-8"
    )
    return [out / f"{stem}.csv", out / f"{stem}.svg"]
