"""Memory and time of a processor with very many keys:
`python -m bench.keyed_state [--keys 1000000] [--slots 4] [--on local|spark]`.

Every key comes once, then a part of them again, with state folder and log on disk. Printed are the peak
memory of all processes, the size of the state, and the time per event.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from bench import keyed_readings, machine
from millrace import state, watermarks
from millrace.config import Settings
from millrace.log import Log, open_log
from millrace.log.codecs.codec import encode
from millrace.processors import Context, Processor
from millrace.runners.local import Hooks, run_local
from millrace.stream import Job, read
from millrace.topics import Topic

BATCH = 50_000


class KeyCounter(Processor):
    """Counts the rows of a key, stores the last time, and sets a timer that is never due.
    Every hundredth row gives an output.
    """

    outputs: ClassVar = {"times": pl.Int64}
    times = state.value(0)
    last = state.value()

    def process(self, row: dict[str, Any], ctx: Context) -> None:  # noqa: ARG002 - it only counts
        """Counts the row."""
        self.times += 1
        self.last = ctx.time
        ctx.set_timer("long", ctx.time + 10**12)
        if self.times % 100 == 0:
            ctx.emit(times=self.times)


def measure_processor(
    keys: int, slots: int, folder: Path, *, on: str = "local", driver_memory: str = "2g"
) -> dict[str, float]:
    """Batches with all keys once, and then a tenth of them again."""
    topic = Topic("input.readings", keyed_readings.Reading, key="key")
    stream = read(topic, watermark=watermarks.ascending()).group_by("key").process(KeyCounter())
    job = Job("remembers", keyed_readings.write_to_topic(stream, "analytics.remembers"))
    settings = Settings().with_options(
        log_url=f"embedded:{folder}/log",
        state_dir=folder / "state",
        run_name="keys",
        run_slots=slots,
        spark_driver_memory=driver_memory,
        run_max_events_per_batch=BATCH,
    )
    with closing(open_log(settings.log.url)) as log:
        log.ensure(topic)
        _append_readings(log, topic, keys)
    peaks, cpu_seconds = [0.0], [0.0]

    def look(*_: object) -> None:
        peaks.append(machine.memory_mb(os.getpid()))
        cpu_seconds.append(sum(machine.cpu_seconds(os.getpid()).values()))

    cpu_at_start = sum(machine.cpu_seconds(os.getpid()).values())
    if on == "local":
        run_local([job], settings=settings, until_caught_up=True, hooks=Hooks(report=look))
    else:
        from bench.spark_foreground import run

        run([job], settings=settings, until_caught_up=True, report=look)
    stored = sum(file.stat().st_size for file in (folder / "state").rglob("*") if file.is_file())
    per_event = (cpu_seconds[-1] - cpu_at_start) / (keys + keys // 10) * 1e6
    return {
        "keys": keys,
        "slots": slots,
        "peak_mb": max(peaks),
        "state_mb": stored / 2**20,
        "cpu_us_per_event": per_event,
    }


def _append_readings(log: Log, topic: Topic, keys: int) -> None:
    """Appends a reading of each key, and then of the first tenth again."""
    for start in range(0, keys + keys // 10, BATCH):
        number = pl.int_range(start, min(start + BATCH, keys + keys // 10), eager=True)
        at = keyed_readings.START + number
        frame = pl.DataFrame({"value": number, "place": number % 100, "event_time": at, "ingestion_time": at})
        log.append(topic.name, encode(topic, frame.with_columns(key=pl.format("key-{}", number % keys))))


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(description="Memory of a processor with very many keys.")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--on", choices=("local", "spark"), default="local")
    parser.add_argument("--driver-memory", default="2g", help="memory of Spark's JVM")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace-keys-") as folder:
        found = measure_processor(
            args.keys, args.slots, Path(folder), on=args.on, driver_memory=args.driver_memory
        )
    sys.stdout.write(
        ", ".join(f"{name} {value:,.1f}" for name, value in found.items())
        + f"\n{machine.describe_machine()}\n"
    )
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
