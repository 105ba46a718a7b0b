"""Sales in cents that are exact: decimals, dates and times as columns, and topics that need no type."""

from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated

import polars as pl

import millrace as mr
from millrace import aggregates, windows


class Payment(Enum):
    """How a customer paid."""

    CARD = "card"
    CASH = "cash"


@dataclass
class Sale:
    """Something was sold."""

    shop: str
    price: Annotated[Decimal, pl.Decimal(10, 2)]
    payment: Payment
    opened: time | None
    best_before: date | None
    waited: timedelta | None


SALES = mr.Topic("input.sales", Sale, key="shop")
TURNOVER = mr.Topic("analytics.turnover", key="shop")

turnover = mr.Job(
    "turnover",
    mr.read(SALES)
    .window(windows.fixed("1d"))
    .group_by("shop")
    .aggregate(
        total=aggregates.sum("price"),
        mean=aggregates.mean("price"),
        waited=aggregates.mean("waited"),
        oldest=aggregates.min("best_before"),
    )
    .write(TURNOVER),
)

busy = mr.Job("busy", mr.read(TURNOVER).filter(pl.col("total") > Decimal("1000.00")).write("analytics.busy"))
