"""The queries of Nexmark, each as one chain. `queries.sql` beside this file asks DuckDB the same.

Where a query is put differently from the public definition, its comment says how and why. Three things hold
for all: `dateTime` is the event time of a row, topics take the place of tables and files, and the times in
results are milliseconds.
"""

from decimal import Decimal

import polars as pl

import millrace as mr
from examples.nexmark.events import AUCTIONS, BIDS, DISORDER, LONGEST, PERSONS, SIDE
from millrace import aggregates, watermarks, windows

on_time = watermarks.bounded(DISORDER)
persons = mr.read(PERSONS, watermark=on_time)
auctions = mr.read(AUCTIONS, watermark=on_time).with_columns(opened=pl.col("event_time"))
bids = mr.read(BIDS, watermark=on_time).with_columns(at=pl.col("event_time"))

price, url = pl.col("price"), pl.col("url")
clock = pl.from_epoch("event_time", time_unit="ms")
day, minute = clock.dt.strftime("%Y-%m-%d"), clock.dt.strftime("%H:%M")
ten_seconds = windows.fixed("10s")
ranks = {
    "rank1": price < 10_000,
    "rank2": price.is_between(10_000, 1_000_000, closed="left"),
    "rank3": price >= 1_000_000,
}
"""The three classes of bids of q15 to q17."""

# q0, pass through: every bid as it is.
q0 = mr.Job("q0", bids.select("auction", "bidder", "price", "extra").write("nexmark.q0"))

# q1, currency: prices in euros, as exact decimals.
euros = price.cast(pl.Decimal(23, 3)) * pl.lit(Decimal("0.908"))
q1 = mr.Job("q1", bids.select("auction", "bidder", "extra", price=euros).write("nexmark.q1"))

# q2, selection: bids on some auctions.
q2 = mr.Job("q2", bids.filter(pl.col("auction") % 123 == 0).select("auction", "price").write("nexmark.q2"))

# q3, local items: who sells in category 10, in three states?
q3 = mr.Job(
    "q3",
    auctions.filter(category=10)
    .group_by("seller")
    .join(persons.filter(pl.col("state").is_in(["OR", "ID", "CA"])).group_by("id"))
    .select("name", "city", "state", "id")
    .write("nexmark.q3"),
)

# q4, average price of a category: of each auction the highest bid while it was open.
q4 = mr.Job(
    "q4",
    auctions.group_by("id")
    .join(bids.group_by("auction"))
    .filter(pl.col("at").is_between("opened", "expires"))
    .group_by("id", "category")
    .max("price", name="highest")
    .group_by("category")
    .mean("highest", name="average")
    .write(mr.Topic("nexmark.q4", key="category")),
)

# q5, hot items: the auctions with most bids of the last ten seconds, every two seconds.
bids_each = bids.window(windows.sliding("10s", every="2s")).group_by("auction").count(name="num")
most_bids = bids_each.max("num")
q5 = mr.Job(
    "q5",
    bids_each.group_by("num").join(most_bids.group_by("num")).select("auction", "num").write("nexmark.q5"),
)

# Winners (q6, q9): the highest bid of each auction while it was open; of equal ones the first. An auction has
# a window of its own, which ends when it expires, so its winner is shown once, then. SQL joins all bids with
# all auctions, and winners come and go. What holds in the end is the same, but nothing is kept of auctions
# that are over. A bid at the very moment when the auction expires still counts, as in SQL.
closing = windows.fixed(LONGEST, offset=pl.col("expires") + 1)
winners = (
    auctions.group_by("id")
    .join(bids.group_by("auction"), within=(0, LONGEST))
    .filter(pl.col("at") <= pl.col("expires"))
    .window(closing)
    .group_by("id")
    .top(1, by=["price", "at"], descending=[True, False], explode=True)
    .drop("rank")
)

# q6, average of the last ten selling prices of a seller, with each auction that closes.
# The SQL of others orders by the time of the winning bid, and takes eleven; the text of the definition asks
# for the last ten closed auctions, so the order is that of closing.
q6 = mr.Job(
    "q6",
    winners.group_by("seller")
    .over(average=aggregates.mean("price"), rows=10)
    .select("seller", "id", "average")
    .write("nexmark.q6"),
)

# q7, highest bid: the bids with the highest price of their ten seconds.
# A result lies at the last millisecond of its window, so the bids of the window are less than 10 s before.
highest = bids.window(ten_seconds).max("price")
q7 = mr.Job(
    "q7",
    bids.group_by("price")
    .join(highest.group_by("price"), within=("0s", "10s"))
    .select("auction", "bidder", "price", "extra", "at")
    .write("nexmark.q7"),
)

# q8, new users: who registered and put up an auction within the same ten seconds?
registered = persons.window(ten_seconds).group_by("id", "name").count(name="times")
sellers = auctions.window(ten_seconds).group_by("seller").count(name="auctions")
q8 = mr.Job(
    "q8", registered.group_by("id").join(sellers.group_by("seller")).select("id", "name").write("nexmark.q8")
)

# q9, winning bids: each closed auction with the bid that won it.
q9 = mr.Job("q9", winners.write("nexmark.q9"))

# q10, log: every bid with its day and minute. The definition writes files in folders of these two; this is a
# topic of JSON, whose partitions take the place of files.
q10 = mr.Job(
    "q10",
    bids.select("auction", "bidder", "price", "extra", day=day, minute=minute).write(
        mr.Topic("nexmark.q10", codec="json")
    ),
)

# q11, user sessions: how many bids did a user make in one visit?
q11 = mr.Job(
    "q11", bids.window(windows.sessions("10s")).group_by("bidder").count(name="bids").write("nexmark.q11")
)

# q12, processing time: how many bids of a user are read within the same ten seconds of the clock? It is the
# one query that another run answers otherwise.
q12 = mr.Job(
    "q12",
    bids.window(windows.processing_time(ten_seconds))
    .group_by("bidder")
    .count(name="bids")
    .write("nexmark.q12"),
)

# q13, side input: a value for some keys, known beforehand. It is a table as of event time, not of the moment
# of arrival, so a replay answers the same.
side = mr.table(SIDE, watermark=watermarks.bounded("0s", idle="1s"))
q13 = mr.Job(
    "q13",
    bids.group_by(key=pl.col("auction") % 10_000)
    .join(side)
    .select("auction", "bidder", "price", "value")
    .write("nexmark.q13"),
)

# q14, calculation: bids of some prices, the time of the day in words, and how often c is in the text.
hour = clock.dt.hour()
time_type = (
    pl.when(hour.is_between(8, 18))
    .then(pl.lit("dayTime"))
    .when((hour <= 6) | (hour >= 20))
    .then(pl.lit("nightTime"))
    .otherwise(pl.lit("otherTime"))
)
q14 = mr.Job(
    "q14",
    bids.with_columns(price=euros)
    .filter((price > 1_000_000) & (price < 50_000_000))
    .select(
        "auction",
        "bidder",
        "price",
        "extra",
        bid_time_type=time_type,
        c_counts=pl.col("extra").str.count_matches("c", literal=True).cast(pl.Int64),
    )
    .write("nexmark.q14"),
)


def by_rank(name: str, column: str | None = None) -> dict[str, aggregates.Reduction]:
    """How many bids there are, or different values of a column: in all, and in each class of prices."""
    conditions = {"total": None, **ranks}
    return {
        f"{rank}_{name}": aggregates.count(column, distinct=column is not None, where=where)
        for rank, where in conditions.items()
    }


bidders_and_auctions = {
    **by_rank("bids"),
    **by_rank("bidders", "bidder"),
    **by_rank("auctions", "auction"),
}

# q15, statistics of a day: bids, bidders and auctions, by price.
q15 = mr.Job(
    "q15", bids.group_by(day=day).aggregate(**bidders_and_auctions).write(mr.Topic("nexmark.q15", key="day"))
)

# q16, the same by channel, with the last minute in which there was a bid.
q16 = mr.Job(
    "q16",
    bids.group_by("channel", day=day)
    .aggregate(minute=aggregates.max(minute), **bidders_and_auctions)
    .write(mr.Topic("nexmark.q16", key="channel")),
)

# q17, statistics of an auction by day.
q17 = mr.Job(
    "q17",
    bids.group_by("auction", day=day)
    .aggregate(
        **by_rank("bids"),
        min_price=aggregates.min("price"),
        max_price=aggregates.max("price"),
        avg_price=aggregates.mean("price"),
        sum_price=aggregates.sum("price"),
    )
    .write(mr.Topic("nexmark.q17", key="auction")),
)

# q18, last bid: the newest bid of each bidder on each auction; of equally new ones the highest, where the
# definition leaves it open.
q18 = mr.Job(
    "q18",
    bids.group_by("bidder", "auction")
    .top(1, by=["at", "price"], explode=True)
    .drop("rank")
    .write("nexmark.q18"),
)

# q19, the ten highest bids of each auction, with their ranks; of equal ones the newest first, which the
# definition leaves open.
q19 = mr.Job("q19", bids.group_by("auction").top(10, by=["price", "at"], explode=True).write("nexmark.q19"))

# q20, bids with their auction, in one category.
q20 = mr.Job(
    "q20",
    bids.group_by("auction").join(auctions.filter(category=10).group_by("id")).write("nexmark.q20"),
)

# q21, channel id: that of four known channels, otherwise the one in the URL.
in_url = url.str.extract(r"(?:&|^)channel_id=([^&]*)", 1)
channel_id = (
    pl.col("channel")
    .str.to_lowercase()
    .replace_strict(
        {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}, default=in_url, return_dtype=pl.String
    )
)
q21 = mr.Job(
    "q21",
    bids.select("auction", "bidder", "price", "channel", channel_id=channel_id)
    .filter(pl.col("channel_id").is_not_null())
    .write("nexmark.q21"),
)

# q22, folders of the URL.
folders = {f"dir{n}": url.str.split("/").list.get(n + 2, null_on_oob=True) for n in (1, 2, 3)}
q22 = mr.Job("q22", bids.select("auction", "bidder", "price", "channel", **folders).write("nexmark.q22"))

# q23, bids with their bidder, and with the auctions of that bidder: a join of three streams.
q23 = mr.Job(
    "q23",
    bids.group_by("bidder")
    .join(persons.group_by("id"))
    .group_by("bidder")
    .join(auctions.group_by("seller"))
    .write("nexmark.q23"),
)

JOBS = {
    job.name: job
    for job in (
        *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11),
        *(q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23),
    )
}
NEWEST = {
    "q4": ("category",),
    "q15": ("day",),
    "q16": ("channel", "day"),
    "q17": ("auction", "day"),
}
"""Queries of which the newest row of each of these keys holds; their topics have a key, so that rows of a key
keep their order. Of the others every row holds that is not withdrawn.
"""
