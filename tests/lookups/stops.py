"""The job of these tests: vehicles call at stops, and a service knows each stop."""

from dataclasses import dataclass
from typing import Any, Unpack

import polars as pl

import millrace as mr
from millrace.engine.source import PartitionBatch
from millrace.log.codecs.codec import Decoded
from millrace.log.dead_letters import DEAD_SCHEMA
from millrace.lookups import LookupOptions
from millrace.runners.local import Engine
from millrace.runners.replay import replay


@dataclass
class Call:
    """A vehicle calls at a stop."""

    vehicle: str
    stop: str | None


@dataclass
class Stop:
    """The answer of the service."""

    cell: str | None
    zone: int | None


@dataclass
class Placed:
    """A call with the columns of the answer."""

    vehicle: str
    stop: str | None
    cell: str | None
    zone: int | None


@dataclass
class Count:
    """A number of calls."""

    cell: str | None
    count: int


CALLS = mr.Topic("input.calls", Call, key="vehicle", partitions=2)


PLACED = mr.Topic("analytics.placed", Placed)


COUNTS = mr.Topic("analytics.counts", Count)


SCHEMA = {"cell": pl.String(), "zone": pl.Int64()}


def make_job(fn: Any, **options: Unpack[LookupOptions]) -> mr.Job:
    options.setdefault("schema", SCHEMA)
    options.setdefault("backoff", 1)
    options["name"] = "stops"
    return mr.Job("placed", mr.read(CALLS).lookup(fn, "stop", **options).write(PLACED))


def calls(*stops: str | None, start: int = 1_000) -> pl.DataFrame:
    return pl.DataFrame(
        [{"vehicle": f"v{i}", "stop": stop, "event_time": start + i} for i, stop in enumerate(stops)],
        schema={"vehicle": pl.String, "stop": pl.String, "event_time": pl.Int64},
    )


def cells(job: mr.Job, *stops: str | None) -> list[str | None]:
    return replay(job, calls(*stops))["cell"].to_list()


class Steps:
    """The same job, a batch at a time."""

    def __init__(self, job: mr.Job) -> None:
        self.engine = Engine([job], partitions={CALLS.name: 1})
        self.off = 0

    def step(self, *stops: str | None, now: int = 0) -> tuple[list[str | None], dict[str, int]]:
        frame = calls(*stops).with_columns(
            ingestion_time=pl.col("event_time"),
            _off=pl.int_range(self.off, self.off + len(stops), dtype=pl.Int64),
        )
        self.off += len(stops)
        results = self.engine.step(
            [PartitionBatch(CALLS.name, 0, Decoded(frame, pl.DataFrame(schema=DEAD_SCHEMA)))], now
        )
        counts = {
            name.removeprefix("lookup/stops/"): n
            for name, n in results.counts.items()
            if name.startswith("lookup/")
        }
        return results.outputs[PLACED.name]["cell"].to_list(), counts
