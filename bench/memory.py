"""Memory over a simulated day, as fast as it goes:
`python -m bench.memory [--hours 24] [--on local|spark] [--out FOLDER]`.

A sliding and a session job run together over events at real volume, a simulated minute a batch. After each
batch the memory of all processes is noted; in the end there are a CSV and an SVG, and a line that says
whether it was flat after the warm-up.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from bench import keyed_readings, machine, plot
from millrace import aggregates, watermarks, windows
from millrace.config import Settings
from millrace.log import Log, open_log
from millrace.log.codecs.codec import encode
from millrace.stream import Job, read
from millrace.topics import Topic

RATE = 676
"""Events per second: the mean of a city's trams and buses over a day of 58 million events."""
VEHICLES = 1_400
PAUSE = 600
"""Seconds without events of a vehicle after about an hour, so that its session ends."""
MINUTE, HOUR = 60, 3_600
WARM_UP = 0.25
"""The part of the day after which memory should not grow."""


def events(minutes: int, *, rate: int = RATE, seed: int = 1) -> Iterator[pl.DataFrame]:
    """One minute of events after the other: vehicles on duty report about every second,
    some reports arrive late.
    """
    rng = np.random.default_rng(seed)
    names = np.array([f"vehicle-{number:05d}" for number in range(VEHICLES)])
    shift = rng.integers(0, HOUR, VEHICLES)
    for minute in range(minutes):
        count = rate * MINUTE * HOUR // (HOUR - PAUSE)
        second = np.sort(rng.integers(minute * MINUTE, (minute + 1) * MINUTE, count))
        vehicle = rng.integers(0, VEHICLES, count)
        resting = (second + shift[vehicle]) % HOUR < PAUSE
        at = keyed_readings.START + second * 1_000 + rng.integers(0, 1_000, count)
        ingested_at = at + np.where(
            rng.random(count) < 0.98, rng.integers(50, 1_000, count), rng.integers(1_000, 30_000, count)
        )
        frame = pl.DataFrame(
            {
                "key": names[vehicle],
                "value": second % 1_000,
                "place": vehicle % 100,
                "event_time": at,
                "ingestion_time": ingested_at,
            }
        )
        yield frame.filter(pl.Series(~resting)).sort("ingestion_time")


def make_jobs(topic: Topic) -> list[Job]:
    """The jobs: vehicles per cell within 30 s, and the sessions of each vehicle."""
    rows = read(topic, watermark=watermarks.bounded("1s", idle="10s"))
    sliding = (
        rows.window(windows.sliding("30s", every="5s"), lateness="1m")
        .group_by("key")
        .latest("place")
        .group_by("place")
        .count()
    )
    duty = (
        rows.window(windows.sessions("5m"), lateness="1m")
        .group_by("key")
        .aggregate(n=aggregates.count(), last=aggregates.max("value"))
    )
    return [
        Job("memory-sliding", keyed_readings.write_to_topic(sliding, "analytics.memory-sliding")),
        Job("memory-sessions", keyed_readings.write_to_topic(duty, "analytics.memory-sessions")),
    ]


@dataclass
class SimulatedDay:
    """Appends a minute of events after each batch, and measures the cost."""

    log: Log
    topic: Topic
    minutes: Iterator[pl.DataFrame]
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    is_over: bool = False

    def feed(self) -> None:
        """Appends the next minute, or ends the day."""
        minute = next(self.minutes, None)
        if minute is None:
            self.is_over = True
        else:
            self.log.append(self.topic.name, encode(self.topic, minute))

    def note_batch(self, count: int) -> None:
        """Counts a batch."""
        if count and not self.is_over:
            self.samples.append(((len(self.samples) + 1) / MINUTE, machine.memory_by_kind(os.getpid())))
            self.feed()


def simulate(hours: float, on: str, folder: Path) -> list[tuple[float, dict[str, float]]]:
    """Memory in megabytes by kind of process after each simulated minute, by the hour of the day."""
    topic = Topic("input.readings", keyed_readings.Reading, key="key", retention="30s")
    settings = Settings().with_options(
        log_url=f"embedded:{folder}/log", state_dir=folder / "state", run_name="memory"
    )
    with closing(open_log(settings.log.url)) as log:
        log.ensure(topic)
        day = SimulatedDay(log, topic, events(int(hours * 60)))
        day.feed()
        _runners()[on](make_jobs(topic), settings, day)
    return day.samples


def _runners() -> dict[str, Callable[[list[Job], Settings, SimulatedDay], None]]:
    return {"local": _run_local, "spark": _run_spark}


def _run_local(jobs_to_run: list[Job], settings: Settings, day: SimulatedDay) -> None:
    from millrace.runners.local import Hooks, run_local

    run_local(
        jobs_to_run,
        settings=settings,
        hooks=Hooks(
            stop=lambda: day.is_over, report=lambda results: day.note_batch(results.counts.get("read", 0))
        ),
    )


def _run_spark(jobs_to_run: list[Job], settings: Settings, day: SimulatedDay) -> None:
    from bench.spark_foreground import run

    run(
        jobs_to_run,
        settings=settings,
        report=lambda _, results: day.note_batch(results.counts.get("read", 0)),
        stop=lambda: day.is_over,
    )


def memory_growth(samples: list[tuple[float, dict[str, float]]]) -> float:
    """The growth of memory from the second to the last quarter of the day; 0.01 is one percent."""
    totals = [sum(parts.values()) for _, parts in samples]
    quarter = max(1, int(len(totals) * WARM_UP))
    return median(totals[-quarter:]) / median(totals[quarter : 2 * quarter] or totals) - 1


def write_samples(samples: list[tuple[float, dict[str, float]]], on: str, out: Path) -> None:
    """Writes the samples as CSV and as SVG."""
    out.mkdir(parents=True, exist_ok=True)
    kinds = sorted({kind for _, parts in samples for kind, size in parts.items() if size})
    with (out / f"memory-{on}.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["hour", *kinds])
        table.writerows(
            [f"{hour:.4f}", *(f"{parts.get(kind, 0):.1f}" for kind in kinds)] for hour, parts in samples
        )
    series = {"all processes": [(hour, sum(parts.values())) for hour, parts in samples]}
    if len(kinds) > 1:
        series |= {kind: [(hour, parts.get(kind, 0.0)) for hour, parts in samples] for kind in kinds}
    title = f"Memory over {samples[-1][0]:.3g} simulated hours, runner {on}"
    (out / f"memory-{on}.svg").write_text(
        plot.draw_lines(title, series, across="hours", along="megabytes"), encoding="utf-8"
    )


def main() -> None:
    """Simulates the day, writes the samples, and prints a summary."""
    parser = argparse.ArgumentParser(description="Memory over a simulated day.")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--on", choices=("local", "spark"), default="local")
    parser.add_argument("--out", type=Path, default=Path("millrace-data/measured"))
    args = parser.parse_args()
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millrace-memory-") as folder:
        samples = simulate(args.hours, args.on, Path(folder))
    write_samples(samples, args.on, args.out)
    peak = max(sum(parts.values()) for _, parts in samples)
    sys.stdout.write(
        f"{args.on}: {len(samples) / MINUTE:.2f} simulated hours in {time.monotonic() - started_at:.0f} s, "
        f"peak {peak:,.0f} MB, last quarter against second {memory_growth(samples):+.1%}; "
        f"{args.out}/memory-{args.on}.svg\n{machine.describe_machine()}\n"
    )
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
