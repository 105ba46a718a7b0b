"""Orders and payments, joined in each of the ways that docs/concepts/joins.md explains."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import watermarks, windows


@dataclass
class Order:
    """A user orders an item."""

    user: str
    item: str


@dataclass
class Payment:
    """A user pays an amount."""

    payer: str
    amount: int


@dataclass
class Customer:
    """The city of a customer from now on; `gone` if the customer has left."""

    user: str
    city: str
    gone: bool


@dataclass
class Paid:
    """An order and a payment; either may be missing."""

    user: str
    item: str | None
    amount: int | None


@dataclass
class Sent:
    """An order, and the city it is sent to."""

    user: str
    item: str
    city: str | None


@dataclass
class Spent:
    """An order, and all that its user has paid so far."""

    user: str
    item: str
    spent: int | None


@dataclass
class Beside:
    """An order, and all that anybody has paid so far."""

    user: str
    item: str
    revenue: int | None


ORDERS, PAYMENTS = (
    mr.Topic("input.orders", Order, key="user"),
    mr.Topic("input.payments", Payment, key="payer"),
)
CUSTOMERS = mr.Topic("input.customers", Customer, key="user")
PAID, SENT = mr.Topic("analytics.paid", Paid, key="user"), mr.Topic("analytics.sent", Sent, key="user")
LOYAL, BESIDE = mr.Topic("analytics.loyal", Spent), mr.Topic("analytics.beside", Beside)

orders = mr.read(ORDERS, watermark=watermarks.bounded("5s"))
payments = mr.read(PAYMENTS, watermark=watermarks.bounded("5s"))

same_minute = mr.Job(
    "same-minute",
    orders.window(windows.fixed("1m"), lateness="5m")
    .group_by("user")
    .join(payments.group_by("payer"), how="full")
    .write(PAID),
)

soon = mr.Job(
    "soon",
    orders.group_by("user").join(payments.group_by("payer"), within=("-5s", "10m"), how="left").write(PAID),
)

settled = mr.Job(
    "settled",
    orders.group_by("user").join(payments.group_by("payer"), how="left", ttl="1d").write(PAID),
)

spent = payments.group_by("payer").sum("amount", name="spent")
loyal = mr.Job("loyal", orders.group_by("user").join(spent.group_by("payer"), how="left").write(LOYAL))

beside = mr.Job("beside", orders.join_scalar(payments.sum("amount", name="revenue")).write(BESIDE))

customers = mr.table(CUSTOMERS, watermark=watermarks.bounded("5s"), deleted=pl.col("gone"))
sent = mr.Job(
    "sent",
    orders.group_by("user").join(customers, how="left").select("user", "item", "city").write(SENT),
)
