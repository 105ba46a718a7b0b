"""Two jobs in a chain: the second one follows the watermark of the first."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import watermarks, windows


@dataclass
class Payment:
    """A card was used."""

    card: str
    amount: int


@dataclass
class Spent:
    """How much a card spent within ten seconds, where that is a lot."""

    card: str
    amount: int


@dataclass
class Alarm:
    """How often a card spent a lot within a minute."""

    card: str
    count: int


PAYMENTS = mr.Topic("input.payments", Payment, key="card", partitions=2)
LARGE = mr.Topic("analytics.large", Spent, key="card", partitions=2)
ALARMS = mr.Topic("analytics.alarms", Alarm, key="card")

large = mr.Job(
    "large",
    mr.read(PAYMENTS, watermark=watermarks.bounded("2s"))
    .window(windows.fixed("10s"))
    .group_by("card")
    .sum("amount")
    .filter(pl.col("amount") >= 1000)
    .write(LARGE),
)

alarms = mr.Job(
    "alarms",
    mr.read(LARGE, watermark=watermarks.upstream())
    .window(windows.fixed("1m"))
    .group_by("card")
    .count()
    .write(ALARMS),
)
