"""Payments checked against limits that change while the job runs: rules are events, and hold from their own
time on.

A limit of 100 in an hour is set at 9:00 and raised to 500 at 11:00. A card that spends 80 and 40 between them
is reported once; after eleven it is not.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

import millrace as mr
from millrace import state, watermarks

HOUR = 3_600_000


@dataclass
class Payment:
    """A payment by card."""

    card: str
    country: str
    amount: int


@dataclass
class Limit:
    """From now on a card may spend so much in an hour in this country."""

    country: str
    amount: int


@dataclass
class Alert:
    """A card spent more."""

    card: str
    country: str
    spent: int
    limit: int


class Spending(mr.Processor):
    """What a card spent in the last hour, against the rules that hold at the time of the payment."""

    outputs: ClassVar = {"country": pl.String, "spent": pl.Int64, "limit": pl.Int64}
    spent = state.list(ttl=HOUR)
    limits = state.map(shared=True)

    def process(self, row: dict[str, Any], ctx: mr.Context) -> None:
        """One payment."""
        self.spent.append([row["country"], row["amount"]])
        total = sum(amount for country, amount in self.spent if country == row["country"])
        limit = self.limits.get(row["country"])
        if limit is not None and total > limit:
            ctx.emit(country=row["country"], spent=total, limit=limit)

    def process_broadcast(self, row: dict[str, Any], ctx: mr.Context) -> None:  # noqa: ARG002 - the rule says it all
        """One rule."""
        self.limits[row["country"]] = row["amount"]


PAYMENTS, LIMITS = (
    mr.Topic("input.payments", Payment, key="card"),
    mr.Topic("input.limits", Limit, key="country"),
)

fraud = mr.Job(
    "fraud",
    mr.read(PAYMENTS, watermark=watermarks.bounded("5s", idle="10s"))
    .group_by("card")
    .process(Spending(), broadcast=mr.read(LIMITS, watermark=watermarks.bounded("5s", idle="10s")))
    .write(mr.Topic("analytics.fraud", Alert, key="card")),
)
