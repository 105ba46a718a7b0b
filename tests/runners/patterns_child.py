"""A local run of patterns in a process of its own, to be killed: `python patterns_child.py LOG STATE`."""

import sys
from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import config, patterns, watermarks
from millrace.runners.local import run_local
from millrace.transit import POSITIONS
from millrace.transit.jobs import emergency_stop


@dataclass
class Slowing:
    vehicle_id: str
    fast: float
    slow: float


SLOWINGS = mr.Topic("analytics.slowings", Slowing, key="vehicle_id", partitions=2)


def jobs() -> list[mr.Job]:
    """A regular pattern, of which rows are kept, and a relaxed one that looks back, of which partial matches
    are. No clock decides anything.
    """
    halved = pl.col("speed") * 2 < patterns.last("fast", "speed")
    slowing = mr.pattern("fast", pl.col("speed") > 12).followed_by("slow", halved).within("6s").skip_to_next()
    select = {"fast": patterns.last("fast", "speed"), "slow": patterns.last("slow", "speed")}
    rows = mr.read(POSITIONS, watermark=watermarks.bounded("5s", idle="1000d"))
    slowings = mr.Job(
        "slowings",
        rows.select("vehicle_id", "speed")
        .group_by("vehicle_id")
        .match(slowing, select=select)
        .write(SLOWINGS),
    )
    return [emergency_stop(idle="1000d"), slowings]


def settings(log: str, state: str) -> config.Settings:
    """Small batches, so that there are many moments at which to be killed."""
    return config.Settings().with_options(log_url=log, state_dir=state, run_max_events_per_batch=400)


if __name__ == "__main__":
    run_local(jobs(), settings=settings(sys.argv[1], sys.argv[2]))
