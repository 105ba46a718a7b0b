"""Patterns in jobs: what docs/how-to/patterns.md shows."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import aggregates, patterns, watermarks, windows
from millrace.patterns import classic


@dataclass
class Payment:
    """A card was used."""

    card: str
    amount: float
    latitude: float
    longitude: float


@dataclass
class Suspicion:
    """A small amount, and soon after it a large one."""

    card: str
    probe: float
    amount: float


PAYMENTS = mr.Topic("input.payments", Payment, key="card")
SUSPICIONS = mr.Topic("analytics.suspicions", Suspicion, key="card")

card_testing = (
    mr.pattern("probe", pl.col("amount") < 1)
    .followed_by("large", pl.col("amount") > 100 * patterns.first("probe", "amount"))
    .within("10m").skip_past_last()
)  # fmt: skip

suspicions = mr.Job(
    "suspicions",
    mr.read(PAYMENTS, watermark=watermarks.bounded("5s", idle="30s"))
    .group_by("card")
    .match(
        card_testing,
        select={"probe": patterns.first("probe", "amount"), "amount": patterns.last("large", "amount")},
    )
    .write(SUSPICIONS),
)

in_sql = """
    MEASURES PROBE.amount AS probe, LARGE.amount AS amount
    PATTERN (PROBE OTHER*? LARGE) WITHIN INTERVAL '10' MINUTE
    DEFINE PROBE AS amount < 1, LARGE AS amount > 100 * PROBE.amount
"""
suspicions_in_sql = mr.Job(
    "suspicions", mr.read(PAYMENTS).group_by("card").match_recognize(in_sql).write(SUSPICIONS)
)

payments = mr.read(PAYMENTS).window(windows.fixed("1m"))
both = classic.all_of(payments.group_by("card"), small=pl.col("amount") < 1, large=pl.col("amount") > 500)
unusual = classic.compare(
    payments.group_by("card"),
    pl.col("most") > 10 * pl.col("mean"),
    most=aggregates.max("amount"),
    mean=aggregates.mean("amount"),
)
in_order = classic.sequence(small=pl.col("amount") < 1, large=pl.col("amount") > 500, within="10m")
rising = classic.trend("amount", "increasing", length=4, within="10m")
homeward = classic.towards(60.17, 24.94, length=3, within="1h")
together = classic.near(payments, "card", km=5)


def lows(prices: pl.DataFrame) -> pl.DataFrame:
    """Where a price fell at least twice and then rose."""
    return mr.sql(
        """
        SELECT ticker, bottom, back
        FROM prices MATCH_RECOGNIZE (
            PARTITION BY ticker ORDER BY ts
            MEASURES LAST(DOWN.price) AS bottom, LAST(price) AS back
            PATTERN (TOP DOWN{2,} UP)
            DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
        )
        """,
        prices=prices,
    )
