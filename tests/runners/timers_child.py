"""A run whose timers are counted, in a process of its own, to be killed:
`python timers_child.py LOG STATE local|spark`.
"""

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

import millrace as mr
from millrace import config, state, watermarks
from millrace.processors import Context


@dataclass
class Step:
    who: str
    number: int


@dataclass
class Rung:
    who: str
    name: str
    steps: int


STEPS, RUNG = (
    mr.Topic("input.steps", Step, key="who", partitions=2),
    mr.Topic("analytics.rung", Rung, key="who", partitions=2),
)


class Rings(mr.Processor):
    """A timer for each row: fires 700 ms later."""

    outputs: ClassVar = {"name": pl.String, "steps": pl.Int64}
    steps = state.value(0)

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        self.steps += 1
        ctx.set_timer(f"{row['number']}", row["event_time"] + 700)

    def on_timer(self, ctx: Context, name: str) -> None:
        ctx.emit(name=name, steps=self.steps)


def rings() -> mr.Job:
    return mr.Job(
        "rings",
        mr.read(STEPS, watermark=watermarks.bounded(100)).group_by("who").process(Rings()).write(RUNG),
    )


def settings(log: str, state: str, **more: object) -> config.Settings:
    """Small batches, so that there are many moments at which to be killed."""
    return config.Settings().with_options(log_url=log, state_dir=state, run_max_events_per_batch=40, **more)


if __name__ == "__main__":
    mr.run(rings(), settings=settings(sys.argv[1], sys.argv[2], run_on=sys.argv[3]))
