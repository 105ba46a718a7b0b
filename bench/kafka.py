"""`millrace bench kafka`: how fast jobs on Spark catch up with a backlog on Kafka, with a broker of its own.

By default vehicle-distribution over synthetic positions; named jobs run together, over the events of a city.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from bench import events
from bench.engine import NAME, run_case
from bench.engine_case import Case, Figures
from bench.transit_jobs import fill_with_city
from millrace.devtools import brokers
from millrace.log import Log, open_log

VEHICLES = 2_000
SPARE_BATCHES = 2
"""Batches are a little larger than the limit."""


def bench(
    rows: Sequence[int], *, batches: int, runners: Sequence[str] = ("spark",), jobs: Sequence[str] = ()
) -> Iterator[Figures]:
    """Yields the figures of each batch size on each runner. They include the broker's CPU."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        cluster = brokers.start(Path(folder, "brokers"), port=0)
        try:
            for number, size in enumerate(rows):
                url = f"{cluster.url}/bench-{number}"
                with closing(open_log(url)) as log:
                    _fill(log, size * (batches + SPARE_BATCHES), jobs)
                pids = tuple(node.pid for node in cluster.nodes if node.pid is not None)
                for runner in runners:
                    name = "+".join(jobs) or NAME
                    yield run_case(Case(name, runner, size, batches, folder, url, pids, tuple(jobs)))
        finally:
            brokers.stop(cluster)


def _fill(log: Log, rows: int, jobs: Sequence[str]) -> None:
    if jobs:
        fill_with_city(log, rows)
    else:
        events.fill_log(log, events.make_positions(-(-rows // VEHICLES), vehicles=VEHICLES), rows=50_000)
