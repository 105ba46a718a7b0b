"""Chains of operators, which docs/concepts/chains.md explains: `python docs/examples/chains.py` shows
what they answer.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

import millrace as mr
from millrace import aggregates, patterns, state, watermarks, windows


@dataclass
class Click:
    """A user looks at an item (`view`), puts it into the cart, or buys it."""

    user: str
    item: str
    step: str


@dataclass
class User:
    """The country of a user, from now on."""

    user: str
    country: str


@dataclass
class Item:
    """What an item belongs to, from now on."""

    item: str
    kind: str


@dataclass
class Rate:
    """The tax of a country, from now on, in percent."""

    country: str
    tax: int


@dataclass
class Enriched:
    """A click beside what is known of its user, item and country."""

    user: str
    item: str
    step: str
    kind: str | None
    country: str | None
    tax: int | None


@dataclass
class Funnel:
    """A purchase that followed a view of the same kind of item."""

    user: str
    kind: str | None
    viewed: str
    bought: str


@dataclass
class Badge:
    """A user has clicked so often."""

    user: str
    clicks: int


@dataclass
class Spree:
    """Purchases close to each other."""

    user: str
    purchases: int


@dataclass
class Popular:
    """The countries that bought most of what they looked at."""

    best: list[str]


@dataclass
class LateClicks:
    """How many clicks of a user came too late in a minute."""

    user: str
    late: int


CLICKS, USERS = mr.Topic("input.clicks", Click), mr.Topic("input.users", User, key="user")
ITEMS, RATES = mr.Topic("input.items", Item, key="item"), mr.Topic("input.rates", Rate, key="country")

clicks = mr.read(CLICKS, watermark=watermarks.bounded("5s"))
known = watermarks.bounded("0s", idle="5s")

enriched = (
    clicks.group_by("user")
    .join(mr.table(USERS, watermark=known), how="left")
    .group_by("item")
    .join(mr.table(ITEMS, watermark=known), how="left")
    .group_by("country")
    .join(mr.table(RATES, watermark=known), how="left")
)
three_tables = mr.Job("three-tables", enriched.write(mr.Topic("analytics.enriched", Enriched)))

bought = (
    mr.pattern("view", pl.col("step") == "view")
    .followed_by("buy", (pl.col("step") == "buy") & (pl.col("kind") == patterns.first("view", "kind")))
    .within("10m")
)
funnels = enriched.group_by("user").match(
    bought,
    select={
        "kind": patterns.first("view", "kind"),
        "viewed": patterns.first("view", "item"),
        "bought": patterns.first("buy", "item"),
    },
)
funnel = mr.Job("funnel", funnels.write(mr.Topic("analytics.funnel", Funnel)))


class Badges(mr.Processor):
    """Says with each click how many there were, at most three."""

    outputs: ClassVar = {"clicks": pl.Int64}
    count = state.value(0)

    def process(self, row: dict[str, Any], ctx: mr.Context) -> None:  # noqa: ARG002 - only how many there are counts
        """One click."""
        self.count = min(self.count + 1, 3)
        ctx.emit(clicks=self.count)


badges = mr.Job(
    "badges",
    clicks.group_by("user")
    .process(Badges())
    .group_by("user")
    .deduplicate("clicks", within="1d")
    .write(mr.Topic("analytics.badges", Badge)),
)

sprees = mr.Job(
    "sprees",
    funnels.window(windows.sessions("2m"))
    .group_by("user")
    .count(name="purchases")
    .write(mr.Topic("analytics.sprees", Spree)),
)

per_country = enriched.window(windows.fixed("10m"))
views = per_country.filter(pl.col("step") == "view").group_by("country").count(name="views")
buys = per_country.filter(pl.col("step") == "buy").group_by("country").count(name="buys")
ranked = (
    views.group_by("country")
    .join(buys.group_by("country"))
    .with_columns(rate=pl.col("buys") / pl.col("views"))
)
popular = mr.Job(
    "popular",
    ranked.aggregate(best=aggregates.top(10, "country", by="rate"))
    .select(best=pl.col("best").list.eval(pl.element().struct.field("country")))
    .write(mr.Topic("analytics.popular", Popular)),
)

REPLAYED = mr.Topic("input.replayed_clicks", Click)
windowed = mr.read(REPLAYED, watermark=watermarks.bounded("5s")).window(windows.fixed("1m"))
refused = windowed.group_by("user").count().late()
late_per_minute = refused.window(windows.fixed("1m")).group_by("user").count(name="late")
late = mr.Job("late", late_per_minute.write(mr.Topic("analytics.late_clicks", LateClicks)))

START = 1_700_000_400_000


def at(second: int, **fields: Any) -> dict[str, Any]:
    """A row at so many seconds."""
    return {**fields, "event_time": START + 1_000 * second}


EVENTS = {
    CLICKS.name: pl.DataFrame(
        [
            at(10, user="ann", item="pen", step="view"),
            at(20, user="bob", item="cup", step="view"),
            at(30, user="ann", item="ink", step="buy"),
            at(40, user="ann", item="cup", step="view"),
            at(70, user="ann", item="cup", step="buy"),
            at(95, user="eve", item="pen", step="view"),
            at(300, user="bob", item="cup", step="buy"),
            at(305, user="bob", item="pen", step="view"),
        ]
    ),
    REPLAYED.name: pl.DataFrame(
        [
            at(50, user="ann", item="pen", step="view"),
            at(75, user="bob", item="cup", step="view"),
            at(58, user="ann", item="ink", step="buy"),
            at(130, user="ann", item="cup", step="view"),
            at(20, user="bob", item="pen", step="view"),
        ]
    ),
    USERS.name: pl.DataFrame([at(0, user="ann", country="FI"), at(1, user="bob", country="EE")]),
    ITEMS.name: pl.DataFrame(
        [
            at(0, item="pen", kind="office"),
            at(0, item="ink", kind="office"),
            at(0, item="cup", kind="kitchen"),
        ]
    ),
    RATES.name: pl.DataFrame(
        [at(0, country="FI", tax=25), at(0, country="EE", tax=22), at(60, country="FI", tax=26)]
    ),
}


def show(job: mr.Job) -> None:
    """What a job answers, in order of event time."""
    rows = mr.replay(job, {read.topic.name: EVENTS[read.topic.name] for read in mr.testing.reads(job)})
    columns = [name for name in job.outputs[0].topic.schema if name != "event_time"]
    print(job.name)
    for row in rows.sort("event_time").select("event_time", *columns).iter_rows():
        print(f"  {(row[0] - START) // 1_000:>4} s ", *row[1:])


if __name__ == "__main__":
    for one in (three_tables, funnel, badges, sprees, popular, late):
        show(one)
