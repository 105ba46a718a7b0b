"""What each delivery costs: `python -m bench.delivery [--log embedded|kafka] [--batches 200]`.

The same small batches on the local runner, whose results go to two topics; in turn exactly once, at least
once and at most once. Printed is the time per batch and what of it is spent on writing results.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Self, get_args

import polars as pl

from bench import keyed_readings, machine
from millrace import watermarks, windows
from millrace.config import Settings
from millrace.devtools import brokers
from millrace.log import open_log
from millrace.log.codecs.codec import encode
from millrace.panes import Delivery
from millrace.runners.commit import Committer
from millrace.runners.local import Hooks, run_local
from millrace.stream import Job, read
from millrace.topics import Topic

BATCH = 1_000
ROUNDS = 3


@contextmanager
def _open_log_url(kind: str, folder: Path) -> Iterator[str]:
    if kind == "embedded":
        yield f"embedded:{folder}/log"
        return
    cluster = brokers.start(folder / "brokers", port=0)
    try:
        yield f"{cluster.url}/delivery"
    finally:
        brokers.stop(cluster)


class CommitTimer:
    """Adds up the time of commits."""

    def __init__(self) -> None:
        self.commits: list[float] = []
        self._commit = Committer.commit

    def __enter__(self) -> Self:
        def timed(*arguments: object, **named: object) -> bool:
            begun = time.perf_counter()
            done: bool = self._commit(*arguments, **named)  # type: ignore[arg-type] # whatever it is given
            self.commits.append(time.perf_counter() - begun)
            return done

        Committer.commit = timed  # type: ignore[method-assign] # from the outside, so that nothing is measured where nobody measures
        return self

    def __exit__(self, *_: object) -> None:
        Committer.commit = self._commit  # type: ignore[method-assign] # as it was


def measure_deliveries(url: str, folder: Path, batches: int) -> Iterator[dict[str, object]]:
    """Milliseconds per batch and per commit (medians)."""
    topic = Topic("input.readings", keyed_readings.Reading, key="key")
    with closing(open_log(url)) as log:
        log.ensure(topic)
        number = pl.int_range(0, batches * BATCH, eager=True)
        at = keyed_readings.START + number * 10
        frame = pl.DataFrame({"value": number, "place": number % 100, "event_time": at, "ingestion_time": at})
        for part in frame.with_columns(key=pl.format("key-{}", number % 500)).iter_slices(50_000):
            log.append(topic.name, encode(topic, part))
    times_by_delivery: dict[str, tuple[list[float], list[float]]] = {
        delivery: ([], []) for delivery in get_args(Delivery)
    }
    for turn in range(ROUNDS):
        for delivery in get_args(Delivery):
            for all_of_them, some in zip(
                times_by_delivery[delivery], _run_once(topic, url, folder, delivery, turn), strict=True
            ):
                all_of_them.extend(some)
    for delivery, (spans, commits) in times_by_delivery.items():
        yield {
            "delivery": delivery,
            "batches": len(spans),
            "batch_ms": median(spans) * 1e3,
            "commit_ms": median(commits) * 1e3,
        }


def _run_once(
    topic: Topic, url: str, folder: Path, delivery: Delivery, turn: int
) -> tuple[list[float], list[float]]:
    """The times of batches and of commits in one run, without the first ones."""
    rows, name = (
        read(topic, watermark=watermarks.ascending()).window(windows.fixed("1s")),
        f"{turn}-{delivery}",
    )
    outputs = [
        keyed_readings.write_to_topic(rows.group_by(key).count(), f"analytics.{name}-{key}")
        for key in ("key", "place")
    ]
    settings = Settings().with_options(
        log_url=url, state_dir=folder / name, run_name=name, run_max_events_per_batch=BATCH
    )
    moments: list[float] = []
    hooks = Hooks(report=lambda _: moments.append(time.perf_counter()))
    with CommitTimer() as timer:
        run_local(
            [Job("counts", *outputs, delivery=delivery)],
            settings=settings,
            take_over=True,
            until_caught_up=True,
            hooks=hooks,
        )
    warm_up = len(moments) // 5
    return [after - before for before, after in pairwise(moments[warm_up:])], timer.commits[warm_up:]


def main() -> None:
    """Measures each delivery and prints a table."""
    parser = argparse.ArgumentParser(description="What each delivery costs.")
    parser.add_argument("--log", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--batches", type=int, default=200)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="millrace-delivery-") as name,
        _open_log_url(args.log, Path(name)) as url,
    ):
        for found in measure_deliveries(url, Path(name), args.batches):
            figures = [
                f"{key} {value:,.2f}" if isinstance(value, float) else f"{key} {value}"
                for key, value in found.items()
            ]
            sys.stdout.write(f"log {args.log}, {', '.join(figures)}\n")
    sys.stdout.write(f"{machine.describe_machine()}\n")


if __name__ == "__main__":
    main()
