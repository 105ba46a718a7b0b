"""The events of Nexmark, an auction house on the web: persons register, put up auctions, and bid.

Of 50 events one is a person, three are auctions, and 46 are bids. Half of the bids go to a few hot auctions
and come from a few hot bidders, and hot sellers put up most of the auctions. The generator is seeded: the
same call makes the same events. It is our own; the values are like those of the public one, not equal.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

import millrace as mr


@dataclass
class Person:
    """Somebody who registers."""

    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str


@dataclass
class Auction:
    """An item is put up for auction, from its event time until it expires (in milliseconds)."""

    id: int
    item: str
    description: str
    initial_bid: int
    reserve: int
    expires: int
    seller: int
    category: int


@dataclass
class Bid:
    """A bid on an auction."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    extra: str


@dataclass
class Side:
    """A row of the side input of q13."""

    key: int
    value: str


PERSONS, AUCTIONS = mr.Topic("nexmark.persons", Person), mr.Topic("nexmark.auctions", Auction)
BIDS, SIDE = mr.Topic("nexmark.bids", Bid), mr.Topic("nexmark.side", Side, key="key")

START = 1_767_288_600_000
"""The first of January 2026, 17:30 UTC: a stream of hours sees day, evening, night and another day."""
DISORDER = 2_000
"""How far behind the newest event one may be, in milliseconds."""
LONGEST = 3_600_000
"""No auction is open longer than an hour."""
FIRST_ID, EPOCH, PER_EPOCH = 1_000, 50, (1, 3, 46)
"""Persons, auctions and bids among 50 events."""
RECENT_AUCTIONS, RECENT_PERSONS = 60, 200
"""Bids are for one of the newest auctions, and by one of the newest persons."""
HOT_AUCTIONS, HOT_PERSONS = 25, 25
"""Of so many ids in a row, the first is hot."""
HOT_BIDDER = 1
"""Hot bidders are the second, so that they are not the hot sellers."""
CITIES = {
    "Phoenix": "AZ",
    "Los Angeles": "CA",
    "San Francisco": "CA",
    "Boise": "ID",
    "Portland": "OR",
    "Bend": "OR",
    "Redmond": "WA",
    "Seattle": "WA",
    "Cheyenne": "WY",
}
FIRST_NAMES = ("Aino", "Bela", "Chloe", "Dario", "Edda", "Femi", "Goran", "Hana", "Ines", "Jonas")
LAST_NAMES = ("Aalto", "Brandt", "Costa", "Duval", "Eklund", "Fischer", "Garcia", "Horvat")
CHANNELS = ("Apple", "Google", "Facebook", "Baidu")

Ints = npt.NDArray[np.int64]


def generate(events: int, *, seed: int = 1, pace: float = 10.0) -> dict[str, pl.DataFrame]:
    """So many events, one every `pace` milliseconds in order of arrival, as a frame for each topic.

    Every fifth event happened up to two seconds before it arrives.
    """
    chance = np.random.default_rng(seed)
    number = np.arange(events)
    arrival = START + (number * pace).astype(np.int64)
    delay = np.where(chance.random(events) < 0.2, chance.integers(0, DISORDER, events), 0)
    times = {"event_time": arrival - delay, "ingestion_time": arrival}
    kind, epoch = number % EPOCH, number // EPOCH
    persons, auctions, _ = PER_EPOCH
    person = epoch + np.minimum(kind, persons)
    auction = epoch * auctions + np.clip(kind - persons, 0, auctions)
    is_person, is_bid = kind < persons, kind >= persons + auctions
    is_auction = ~(is_person | is_bid)
    lasts = chance.exponential(EPOCH * 30 * pace, events).clip(EPOCH * 10 * pace, LONGEST - 1)
    expires = (times["event_time"] + lasts).astype(np.int64)
    frames = {
        PERSONS.name: (is_person, _persons(chance, person[is_person])),
        AUCTIONS.name: (
            is_auction,
            _auctions(chance, auction[is_auction], person[is_auction], expires[is_auction]),
        ),
        BIDS.name: (is_bid, _bids(chance, auction[is_bid], person[is_bid])),
    }
    return {
        topic: frame.with_columns(**{name: pl.Series(column[chosen]) for name, column in times.items()})
        for topic, (chosen, frame) in frames.items()
    }


def side_input() -> pl.DataFrame:
    """A value for most of the keys of q13, as known before the first event."""
    keys = pl.Series("key", np.arange(0, 10_000), dtype=pl.Int64)
    known = pl.DataFrame([keys]).filter(pl.col("key") % 7 != 0)
    before = pl.lit(START - LONGEST)
    return known.with_columns(value=pl.format("side-{}", "key"), event_time=before, ingestion_time=before)


def _persons(chance: np.random.Generator, number: Ints) -> pl.DataFrame:
    size = len(number)
    first, last = _some(chance, FIRST_NAMES, size), _some(chance, LAST_NAMES, size)
    city = _some(chance, tuple(CITIES), size)
    return pl.DataFrame({"id": number + FIRST_ID, "first": first, "last": last, "city": city}).select(
        "id",
        name=pl.format("{} {}", "first", "last"),
        email=pl.format(
            "{}@{}.example", pl.col("first").str.to_lowercase(), pl.col("last").str.to_lowercase()
        ),
        credit_card=pl.Series(chance.integers(10**15, 10**16, size)).cast(pl.String),
        city="city",
        state=pl.col("city").replace_strict(CITIES, return_dtype=pl.String),
    )


def _auctions(chance: np.random.Generator, number: Ints, persons: Ints, expires: Ints) -> pl.DataFrame:
    size = len(number)
    initial, item = _prices(chance, size), pl.Series(chance.integers(0, 5_000, size))
    return pl.DataFrame(
        {
            "id": number + FIRST_ID,
            "initial_bid": initial,
            "reserve": initial + _prices(chance, size),
            "expires": expires,
            "seller": FIRST_ID + _recent(chance, persons, RECENT_PERSONS, HOT_PERSONS, 0.75),
            "category": chance.integers(10, 15, size),
        }
    ).with_columns(item=pl.format("item-{}", item), description=pl.format("the {}th of its kind", item))


def _bids(chance: np.random.Generator, auctions: Ints, persons: Ints) -> pl.DataFrame:
    size = len(auctions)
    page = pl.Series(chance.integers(0, 1_000, size))
    known = pl.Series(chance.random(size) < 0.5)
    query = pl.when(known).then(pl.lit("")).otherwise(pl.format("&channel_id={}", page))
    folders = [_some(chance, ("art", "books", "coins", "toys"), size) for _ in range(3)]
    return pl.DataFrame(
        {
            "auction": FIRST_ID + _recent(chance, auctions, RECENT_AUCTIONS, HOT_AUCTIONS, 0.5),
            "bidder": FIRST_ID + _recent(chance, persons, RECENT_PERSONS, HOT_PERSONS, 0.5, HOT_BIDDER),
            "price": _prices(chance, size),
            "channel": _some(chance, CHANNELS, size),
            "text": chance.integers(10**8, 10**12, size),
        }
    ).select(
        "auction",
        "bidder",
        "price",
        channel=pl.when(known).then("channel").otherwise(pl.format("channel-{}", page)),
        url=pl.format("https://auctions.example/{}/{}/{}/item?page=1{}", *folders, query),
        extra=pl.col("text").cast(pl.String).str.replace_all("1", "c"),
    )


def _recent(
    chance: np.random.Generator, newest: Ints, recent: int, hot_of: int, share: float, hot: int = 0
) -> Ints:
    """Ids of things that there are already: with probability `share` that of the newest hot one, else one of
    the most recent. Of each `hot_of` ids the one at place `hot` is.
    """
    last = np.maximum(newest - 1, 0)
    any_of = last - (chance.random(len(last)) * np.minimum(last + 1, recent)).astype(np.int64)
    hottest = np.minimum(last // hot_of * hot_of + hot, last)
    chosen: Ints = np.where(chance.random(len(last)) < share, hottest, any_of)
    return chosen


def _prices(chance: np.random.Generator, size: int) -> Ints:
    """Cents from 100 to 100,000,000: as many between 100 and 1,000 as between 1,000 and 10,000."""
    prices: Ints = np.power(10.0, chance.uniform(2, 8, size)).round().astype(np.int64)
    return prices


def _some(chance: np.random.Generator, values: tuple[str, ...], size: int) -> pl.Series:
    return pl.Series(np.array(values)[chance.integers(0, len(values), size)])
