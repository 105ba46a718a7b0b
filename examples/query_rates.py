"""Spikes and dips of search queries: rates per ten seconds, and a model of each query as state."""

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

import millrace as mr
from millrace import state, watermarks, windows

EVERY = 10_000


@dataclass
class Query:
    """A search query."""

    query: str


@dataclass
class Rate:
    """How often a query was asked in ten seconds."""

    query: str
    rate: int


@dataclass
class Anomaly:
    """The expected rate, the actual one, and whether it is a spike or a dip."""

    query: str
    kind: str
    rate: int
    expected: float


RATES = mr.Topic("analytics.rates", Rate, key="query")

rates = mr.Job(
    "rates",
    mr.read(mr.Topic("input.queries", Query, key="query"), watermark=watermarks.bounded("2s"))
    .window(windows.fixed(EVERY))
    .group_by("query")
    .count(name="rate")
    .write(RATES),
)


class Expects(mr.Processor):
    """A decaying mean and deviation of rates.
    Ten seconds without a query are a rate of zero, which a timer reports.
    """

    outputs: ClassVar = {"kind": pl.String, "rate": pl.Int64, "expected": pl.Float64}
    expected = state.value(0.0)
    spread = state.value(0.0)
    seen = state.value(0)

    def process(self, row: dict[str, Any], ctx: mr.Context) -> None:
        """A rate."""
        self.judge(row["rate"], ctx)

    def on_timer(self, ctx: mr.Context, name: str) -> None:  # noqa: ARG002 - there is one
        """No rate came."""
        self.judge(0, ctx)

    def judge(self, rate: int, ctx: mr.Context) -> None:
        """Compares first, then learns."""
        off = rate - self.expected
        if self.seen >= 6 and abs(off) > 4 * self.spread + 3:
            ctx.emit(kind="spike" if off > 0 else "dip", rate=rate, expected=self.expected)
        share = max(0.1, 1 / (self.seen + 1))
        self.expected += share * off
        self.spread += share * (abs(off) - self.spread)
        self.seen += 1
        if self.expected >= 1:
            ctx.set_timer("silent", (ctx.time + 1 + EVERY) // EVERY * EVERY)


anomalies = mr.Job(
    "anomalies",
    mr.read(RATES, watermark=watermarks.bounded(EVERY))
    .group_by("query")
    .process(Expects())
    .write(mr.Topic("analytics.anomalies", Anomaly, key="query")),
)


def queries(seconds: int = 300) -> pl.DataFrame:
    """About two queries a second for the weather and one for the news; someone wins a match after 200 s, and
    the news are silent for a minute after 240 s.
    """
    dice, made = random.Random(7), []  # noqa: S311 - an example, not a secret
    for second in range(seconds):
        per_second = {
            "weather": 2,
            "news": 0 if second >= 240 else 1,
            "match": 30 if 200 <= second < 210 else 1,
        }
        made += [
            (query, second * 1_000 + dice.randrange(1_000))
            for query, n in per_second.items()
            for _ in range(n + (n > 0 and dice.random() < 0.2))
        ]
    return pl.DataFrame(made, schema={"query": pl.String, "event_time": pl.Int64}, orient="row").sort(
        "event_time"
    )


if __name__ == "__main__":
    rated = mr.replay(rates, queries()).select("query", "rate", "event_time")
    found = mr.replay(anomalies, rated).filter(
        pl.col("event_time") < 300_000
    )  # after that everything is silent
    print(
        found.select("query", "kind", "rate", pl.col("expected").round(1), at=pl.col("event_time") // 1_000)
    )
