"""`millrace bench kafka`: how fast vehicle-distribution on Spark catches up with a backlog on Kafka,
with a broker of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from bench import events
from bench.engine import NAME, run_case
from bench.engine_case import Case, Figures
from millrace.devtools import brokers
from millrace.log import open_log

VEHICLES = 2_000
SPARE_BATCHES = 2
"""Batches are a little larger than the limit."""


def bench(rows: Sequence[int], *, batches: int, runners: Sequence[str] = ("spark",)) -> Iterator[Figures]:
    """Yields the figures of each batch size on each runner. They include the broker's CPU."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        cluster = brokers.start(Path(folder, "brokers"), port=0)
        try:
            for number, size in enumerate(rows):
                url = f"{cluster.url}/bench-{number}"
                with closing(open_log(url)) as log:
                    event_rows = events.make_positions(
                        -(-size * (batches + SPARE_BATCHES) // VEHICLES), vehicles=VEHICLES
                    )
                    events.fill_log(log, event_rows, rows=50_000)
                pids = tuple(node.pid for node in cluster.nodes if node.pid is not None)
                for runner in runners:
                    yield run_case(Case(NAME, runner, size, batches, folder, url, pids))
        finally:
            brokers.stop(cluster)
