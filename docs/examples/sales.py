"""A market: aggregates of expressions, of some rows alone, and rankings row by row."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import aggregates, windows


@dataclass
class Sale:
    """Somebody buys something, or brings it back."""

    product: str
    buyer: str
    price: float
    quantity: int
    returned: bool


@dataclass
class Turnover:
    """What a product brought in within an hour."""

    product: str
    sold: int
    turnover: float | None
    buyers: int


@dataclass
class PriceClass:
    """How much was sold at such a price."""

    tens: int
    sales: int


@dataclass
class Bestseller:
    """A place among the products of an hour."""

    rank: int
    product: str
    turnover: float
    buyers: int


SALES = mr.Topic("input.sales", Sale, key="product")
TURNOVERS = mr.Topic("analytics.turnovers", Turnover, key="product")
PRICE_CLASSES = mr.Topic("analytics.price-classes", PriceClass)
BESTSELLERS = mr.Topic("analytics.bestsellers", Bestseller)

sales = mr.read(SALES).window(windows.fixed("1h"), lateness="1h")

turnovers = sales.group_by("product").aggregate(
    sold=aggregates.count(where=~pl.col("returned")),
    turnover=aggregates.sum(pl.col("price") * pl.col("quantity"), where=~pl.col("returned")),
    buyers=aggregates.count("buyer", distinct=True),
)

price_classes = sales.group_by(tens=(pl.col("price") // 10).cast(pl.Int64)).count(name="sales")

bestsellers = turnovers.select("product", "turnover", "buyers").top(
    3, by=["turnover", "buyers"], descending=[True, False], explode=True
)

job = mr.Job(
    "sales",
    turnovers.write(TURNOVERS),
    price_classes.write(PRICE_CLASSES),
    bestsellers.write(BESTSELLERS),
)
