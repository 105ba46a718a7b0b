"""Payments of accounts, beside what docs/concepts/row-frames.md computes of those around them."""

from dataclasses import dataclass

import millrace as mr
from millrace import aggregates, frames, watermarks


@dataclass
class Payment:
    """An amount that comes into an account, or leaves it."""

    account: str
    amount: int


@dataclass
class Statement:
    """A payment with the balance after it, and the one before it."""

    account: str
    amount: int
    balance: int
    before: int | None


@dataclass
class Spending:
    """A payment beside the payments of the last minutes."""

    account: str
    amount: int
    number: int
    spent: int | None
    greatest: int


@dataclass
class Followed:
    """A payment and the one after it."""

    account: str
    amount: int
    after: int | None


PAYMENTS = mr.Topic("input.payments", Payment, key="account")
STATEMENTS = mr.Topic("analytics.statements", Statement, key="account")
SPENDING = mr.Topic("analytics.spending", Spending, key="account")
FOLLOWED = mr.Topic("analytics.followed", Followed, key="account")

payments = mr.read(PAYMENTS, watermark=watermarks.bounded("5s"))

statements = mr.Job(
    "statements",
    payments.group_by("account")
    .over(balance=aggregates.sum("amount"), before=frames.lag("amount"))
    .write(STATEMENTS),
)

spending = mr.Job(
    "spending",
    payments.group_by("account")
    .over(
        number=aggregates.count(),
        spent=aggregates.sum("amount"),
        greatest=aggregates.max("amount"),
        range="10m",
    )
    .write(SPENDING),
)

corrected = mr.Job(
    "corrected",
    payments.group_by("account")
    .over(balance=aggregates.sum("amount"), before=frames.lag("amount"), lateness="10m")
    .write(mr.Topic("analytics.corrected", Statement, key="account")),
)

followed = mr.Job(
    "followed",
    payments.group_by("account").over(after=frames.lead("amount", within="10m"), ttl="30d").write(FOLLOWED),
)
