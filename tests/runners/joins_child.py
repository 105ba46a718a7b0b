"""A run of joins, a deduplication and a processor in a process of its own, to be killed:
`python joins_child.py LOG STATE local|spark`.
"""

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

import millrace as mr
from millrace import config, state, watermarks, windows
from millrace.processors import Context


@dataclass
class Order:
    user: str
    number: int


@dataclass
class Payment:
    payer: str
    amount: int


@dataclass
class City:
    user: str
    city: str


@dataclass
class Paid:
    user: str
    number: int | None
    amount: int | None


@dataclass
class Sent:
    user: str
    number: int
    city: str | None


@dataclass
class Owed:
    user: str
    open: int


ORDERS = mr.Topic("input.orders", Order, key="user", partitions=2)
PAYMENTS = mr.Topic("input.payments", Payment, key="payer", partitions=2)
CITIES = mr.Topic("input.cities", City, key="user")
SAME, SOON, SENT, OWED = (
    mr.Topic(f"analytics.{name}", kind, key="user", partitions=2)
    for name, kind in (("same", Paid), ("soon", Paid), ("sent", Sent), ("owed", Owed))
)


class Owes(mr.Processor):
    """How many orders a user has had when none came for a second."""

    outputs: ClassVar = {"open": pl.Int64}
    numbers = state.list(ttl="10s")

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        self.numbers.append(row["number"])
        ctx.set_timer("quiet", ctx.time + 1_000)

    def on_timer(self, ctx: Context, name: str) -> None:
        ctx.emit(open=len(self.numbers))


def jobs() -> list[mr.Job]:
    """A join of every kind, and a processor behind a deduplication. No clock decides anything."""
    orders, payments = (mr.read(topic, watermark=watermarks.bounded("2s")) for topic in (ORDERS, PAYMENTS))
    there = (
        orders.window(windows.fixed("5s"), lateness="5s")
        .group_by("user")
        .join(payments.group_by("payer"), how="full")
    )
    soon = orders.group_by("user").join(payments.group_by("payer"), within=("-1s", "2s"), how="full")
    sent = orders.group_by("user").join(mr.table(CITIES, watermark=watermarks.bounded("1s")), how="left")
    owed = (
        orders.group_by("user")
        .deduplicate("number", "event_time", within="10s")
        .group_by("user")
        .process(Owes())
    )
    return [
        mr.Job("same", there.write(SAME)),
        mr.Job("soon", soon.write(SOON)),
        mr.Job("sent", sent.write(SENT)),
        mr.Job("owed", owed.write(OWED)),
    ]


def settings(log: str, state: str, **more: object) -> config.Settings:
    """Small batches, so that there are many moments at which to be killed."""
    return config.Settings().with_options(log_url=log, state_dir=state, run_max_events_per_batch=80, **more)


if __name__ == "__main__":
    mr.run(*jobs(), settings=settings(sys.argv[1], sys.argv[2], run_on=sys.argv[3]))
