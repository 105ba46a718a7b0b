"""A local run in a process of its own, to be killed: `python local_child.py LOG STATE`."""

import sys
from dataclasses import dataclass

import millrace as mr
from millrace import config, watermarks, windows
from millrace.runners.local import run_local


@dataclass
class Reading:
    sensor: str
    value: int


@dataclass
class Total:
    sensor: str
    value: int


READINGS = mr.Topic("input.readings", Reading, key="sensor", partitions=2)
TOTALS = mr.Topic("analytics.totals", Total, key="sensor", partitions=2)


def totals() -> mr.Job:
    """The sum of each sensor, 10 s every 5 s."""
    readings = mr.read(READINGS, watermark=watermarks.bounded("1s"))
    return mr.Job(
        "totals",
        readings.window(windows.sliding("10s", every="5s"), lateness="20s")
        .group_by("sensor")
        .sum("value")
        .write(TOTALS),
    )


JOB = totals()


def settings(log: str, state: str, **more: object) -> config.Settings:
    """Small batches, so that there are many moments at which to be killed."""
    return config.Settings().with_options(log_url=log, state_dir=state, run_max_events_per_batch=60, **more)


if __name__ == "__main__":
    run_local([totals()], settings=settings(sys.argv[1], sys.argv[2]), until_caught_up=len(sys.argv) > 3)
