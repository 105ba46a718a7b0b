"""Orders with the price that was valid at their time, even if the price list arrives later."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import watermarks


@dataclass
class Order:
    """An order for some pieces of an article."""

    article: str
    quantity: int


@dataclass
class Price:
    """What an article costs from now on."""

    article: str
    price: int


@dataclass
class Priced:
    """An order, and what it costs."""

    article: str
    quantity: int
    price: int | None
    total: int | None


ORDERS, PRICES = (
    mr.Topic("input.orders", Order, key="article"),
    mr.Topic("input.prices", Price, key="article"),
)

priced = mr.Job(
    "priced-orders",
    mr.read(ORDERS, watermark=watermarks.bounded("5s"))
    .group_by("article")
    .join(mr.table(PRICES, watermark=watermarks.bounded("5s")), how="left")
    .with_columns(total=pl.col("quantity") * pl.col("price"))
    .write(mr.Topic("analytics.priced-orders", Priced, key="article")),
)

if __name__ == "__main__":
    orders = pl.DataFrame(
        {"article": ["pen", "pen", "ink"], "quantity": [1, 2, 3], "event_time": [1_000, 9_000, 9_500]}
    )
    prices = pl.DataFrame({"article": ["pen", "pen"], "price": [10, 12], "event_time": [0, 5_000]})
    print(
        mr.replay(priced, {"input.orders": orders, "input.prices": prices}).select(
            "article", "quantity", "price", "total"
        )
    )
