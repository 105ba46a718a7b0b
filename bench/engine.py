"""`millrace bench engine`: vehicle-distribution on Spark, beside plain Structured Streaming and the engine in
one process; then kinds.

Every case runs in a process of its own, one after the other, over the same synthetic events: from the
embedded log, as protobuf, with H3. So does plain SQL (`spark-sql`, which drops what comes later than a
second; `spark-sql-complete`, which waits a minute so that its answers are the same as ours); to see what that
costs it, it is also given the same events as Parquet, decoded and with the geocell (`spark-sql-parquet`; see
`bench/plain_spark.py`). `spark-4-slots` is millrace with what is keyed divided by four; by default it is one
task on two cores. Then come the kinds of windows, triggers and aggregates (see `bench/kinds.py`), each by
itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import polars as pl

from bench import events
from bench.engine_case import Case, Figures
from bench.kinds import all_kinds
from bench.kinds_series import Series
from bench.transit_jobs import fill_with_city
from millrace.errors import ConfigError, RunFailed
from millrace.geo import geocell
from millrace.log import open_log

NAME = "vehicle-distribution"
EMERGENCY_STOP = "emergency-stop"
SIZES = {400_000: 10, 100_000: 20, 20_000: 40, 200: 60}
"""Rows a batch, and how many batches."""
EMERGENCY_STOP_SIZES = {400_000: 10, 50_000: 20}
"""The same for emergency-stop."""
CITY_SIZES = {400_000: 10, 100_000: 20, 10_000: 60, 700: 100}
"""The same for jobs that run together, over the events of a city."""
RUNNERS = ("spark", "spark-4-slots", "spark-sql", "spark-sql-complete", "spark-sql-parquet", "local")
SECONDS = 2_000
"""Seconds of events of 2,000 vehicles, enough for the largest case."""


def bench(only: Sequence[str] = (), *, scale: float = 1.0) -> Iterator[Figures]:
    """Yields the figures of each case.

    `only`: runners, and names of cases, of kinds (`windows/fixed`) or of groups of kinds (`windows`);
    `scale`: smaller kinds, to see that everything works.
    """
    runners = [runner for runner in RUNNERS if runner in only] or list(RUNNERS)
    names = [name for name in only if name not in RUNNERS]
    labels = [kind.label for kind in all_kinds() if not names or kind.label in names or kind.group in names]
    known = {
        NAME,
        EMERGENCY_STOP,
        *(kind.label for kind in all_kinds()),
        *(kind.group for kind in all_kinds()),
    }
    if unknown := [name for name in names if name not in known]:
        groups = dict.fromkeys(kind.group for kind in all_kinds())
        raise ConfigError(
            f"--only {', '.join(unknown)}: there is no such measurement; there are {NAME}, "
            f"{EMERGENCY_STOP}, {', '.join(groups)}, one of those such as "
            f"{labels[0] if labels else 'windows/fixed'}, and the runners {', '.join(RUNNERS)}"
        )
    if not names or NAME in names:
        yield from _run_use_case(NAME, runners, SIZES)
    if not names or {EMERGENCY_STOP, "patterns"} & set(names):
        yield from _run_use_case(
            EMERGENCY_STOP,
            [runner for runner in runners if runner in ("spark", "local")],
            EMERGENCY_STOP_SIZES,
        )
    for runner in runners:
        if labels and runner in ("spark", "local"):
            yield from run_series(Series(runner, labels, scale=scale))


def bench_jobs(jobs: Sequence[str], only: Sequence[str] = (), *, scale: float = 1.0) -> Iterator[Figures]:
    """Yields the figures of jobs that run together over the events of a city, on Spark and in one process."""
    runners = [runner for runner in ("spark", "local") if not only or runner in only]
    if unknown := [name for name in only if name not in ("spark", "local")]:
        raise ConfigError(f"--only {', '.join(unknown)}: named jobs are measured on spark and on local")
    sizes = {max(1, round(rows * scale)): batches for rows, batches in CITY_SIZES.items()}
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        with closing(open_log(f"embedded:{folder}/log")) as log:
            fill_with_city(log, max(rows * (batches + 1) for rows, batches in sizes.items()))
        os.sync()
        for rows, batches in sizes.items():
            for runner in runners:
                yield run_case(Case("+".join(jobs), runner, rows, batches, folder, jobs=tuple(jobs)))


def _run_use_case(name: str, runners: Sequence[str], sizes: Mapping[int, int]) -> Iterator[Figures]:
    chosen = [(runner, rows, batches) for rows, batches in sizes.items() for runner in runners]
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        prepare_events(
            Path(folder),
            [(rows, batches) for runner, rows, batches in chosen if runner == "spark-sql-parquet"],
        )
        for runner, rows, batches in chosen:
            yield run_case(Case(name, runner, rows, batches, folder))


def run_series(series: Series) -> Iterator[Figures]:
    """Measures kinds one after the other in a process of their own, so that the JVM is warm."""
    command = [sys.executable, "-m", "bench.kinds_series", json.dumps(asdict(series))]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        for line in process.stdout or ():
            if line.startswith("{"):
                yield Figures(**json.loads(line))
        if process.wait() != 0:
            errors.seek(0)
            raise RunFailed(f"measuring kinds on {series.runner} failed: {errors.read().strip()[-2000:]}")


def run_case(case: Case) -> Figures:
    """Measures one case in a process of its own."""
    process = subprocess.run(
        [sys.executable, "-m", "bench.engine_case", json.dumps(asdict(case))],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = process.stdout.splitlines()
    if process.returncode != 0 or not lines:
        raise RunFailed(f"measuring {case.name} on {case.runner} failed: {process.stderr.strip()[-2000:]}")
    return Figures(**json.loads(lines[-1]))


def prepare_events(folder: Path, files: Sequence[tuple[int, int]]) -> None:
    """Writes the events to a log, and for plain SQL to files, two per batch."""
    event_rows = events.make_positions(SECONDS)
    log = open_log(f"embedded:{folder}/log")
    events.fill_log(log, event_rows, rows=50_000)
    log.close()
    os.sync()  # so that the first case does not pay for what is still to be written
    if not files:
        return
    cells = event_rows.select(
        "vehicle_id", geocell().alias("geocell"), pl.from_epoch("event_time", time_unit="ms")
    )
    for rows, batches in files:
        files_folder = folder / "files" / str(rows)
        files_folder.mkdir(parents=True)
        for number, part in zip(range(2 * batches), cells.iter_slices(rows // 2), strict=False):
            part.write_parquet(files_folder / f"{number:05}.parquet")
