"""Patterns that come from a topic: what docs/how-to/rules.md shows."""

from dataclasses import dataclass

from pattern_jobs import PAYMENTS

import millrace as mr
from millrace import patterns, watermarks


@dataclass
class Alert:
    """Payments that a rule has found."""

    card: str
    rule: str
    steps: list[str]
    times: list[int]
    amount: list[float]


RULES = mr.Topic("input.rules", patterns.Rule, key="name")
ALERTS = mr.Topic("analytics.alerts", Alert, key="card")

alerts = mr.Job(
    "alerts",
    mr.read(PAYMENTS, watermark=watermarks.bounded("5s", idle="30s"))
    .group_by("card")
    .match_rules(mr.read(RULES, watermark=watermarks.bounded("1s", idle="10s")), show=["amount"])
    .write(ALERTS),
)
