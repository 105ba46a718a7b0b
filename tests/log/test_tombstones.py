"""Records without a value take a key out of a table, and what a job withdraws is written as one."""

import enum
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import millrace as mr
from millrace import watermarks, windows
from millrace.config import Settings
from millrace.errors import DefinitionError
from millrace.log import Log, OutgoingRecords, Records
from millrace.log.codecs.codec import decode, encode
from millrace.runners import run


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Price:
    article: str
    price: int


@dataclass
class Order:
    article: str
    number: int


@dataclass
class Priced:
    article: str
    number: int
    price: int | None


@dataclass
class Cheapest:
    article: str
    price: int | None


PRICES = mr.Topic("shop.prices", Price, key="article", partitions=1, compact=True, tombstones=True)
ORDERS = mr.Topic("input.orders", Order, key="article", partitions=1)
PRICED = mr.Topic("analytics.priced", Priced, key="article", partitions=1)


def rows(log: Log, topic: mr.Topic, *, panes: bool = False) -> pl.DataFrame:
    return decode(topic, 0, log.read(topic.name, 0, 0, log.end_offsets(topic.name)[0]), panes=panes).rows


def append(log: Log, topic: mr.Topic, values: list[tuple[str, int, int]]) -> None:
    frame = pl.DataFrame(values, schema=[*topic.schema, "event_time"], orient="row").with_columns(
        ingestion_time=pl.col("event_time")
    )
    log.append(topic.name, encode(topic, frame))


def bury(log: Log, topic: mr.Topic, key: str, at: int) -> None:
    log.append(
        topic.name,
        OutgoingRecords(pa.array([None], pa.binary()), pa.array([key.encode()], pa.binary())),
        now=at,
    )


def test_a_record_without_a_value_is_a_row_of_nulls_at_the_time_of_its_append(log: Log) -> None:
    log.ensure(PRICES)
    append(log, PRICES, [("pen", 3, 1_000)])
    bury(log, PRICES, "pen", 5_000)
    append(log, PRICES, [("pen", 4, 9_000)])
    assert rows(log, PRICES).select("article", "price", "event_time").rows() == [
        ("pen", 3, 1_000),
        ("pen", None, 5_000),
        ("pen", 4, 9_000),
    ]
    assert rows(log, PRICES, panes=True)["op"].to_list() == [None, "-", None]


def test_an_order_sees_no_price_of_a_deleted_article(log: Log, tmp_path: Path) -> None:
    for topic in (PRICES, ORDERS):
        log.ensure(topic)
    append(log, PRICES, [("pen", 3, 1_000), ("ink", 7, 1_000)])
    bury(log, PRICES, "pen", 5_000)
    append(log, PRICES, [("pen", 4, 9_000), ("ink", 8, 60_000)])
    append(
        log,
        ORDERS,
        [("pen", 1, 2_000), ("pen", 2, 6_000), ("ink", 3, 6_000), ("pen", 4, 10_000), ("ink", 5, 60_000)],
    )
    orders, table = (
        mr.read(ORDERS, watermark=watermarks.bounded(0)),
        mr.table(PRICES, watermark=watermarks.bounded(0)),
    )
    job = mr.Job("priced", orders.group_by("article").join(table, how="left").write(PRICED))
    run(
        job,
        on="local",
        settings=Settings().with_options(log_url=log.url, state_dir=tmp_path / "state"),
        until_caught_up=True,
    )
    assert sorted(rows(log, PRICED).select("number", "price").rows()) == [(1, 3), (2, None), (3, 7), (4, 4)]


def test_a_retracted_result_is_a_tombstone(log: Log, tmp_path: Path) -> None:
    """A late price takes a cheap article out of those that cost at least 5."""
    source, dear = (
        mr.Topic("input.prices", Price, key="article", partitions=1),
        mr.Topic("analytics.dear", Cheapest, key="article", partitions=1, compact=True, tombstones=True),
    )
    log.ensure(source)
    least = (
        mr.read(source, watermark=watermarks.bounded(0))
        .window(windows.fixed("10s"), lateness="1h")
        .group_by("article")
        .min("price")
    )
    job = mr.Job("dear", least.filter(pl.col("price") >= 5).write(dear))
    settings = Settings().with_options(log_url=log.url, state_dir=tmp_path / "state")
    append(log, source, [("pen", 6, 1_000), ("ink", 9, 2_000), ("pad", 9, 30_000)])
    run(job, on="local", settings=settings, until_caught_up=True)
    append(log, source, [("pen", 2, 3_000)])
    run(job, on="local", settings=settings, until_caught_up=True)
    found = log.read(dear.name, 0, 0, log.end_offsets(dear.name)[0])
    assert [
        (key.decode(), value is None)
        for key, value in zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True)
    ][-1] == (
        "pen",
        True,
    )
    assert rows(log, dear)["price"].to_list()[-1] is None
    assert sorted(rows(log, dear).filter(pl.col("price").is_not_null())["article"]) == ["ink", "pen"]


def test_tombstones_need_a_compacted_topic_and_a_field_besides_the_key() -> None:
    @dataclass
    class Only:
        article: str

    with pytest.raises(DefinitionError, match="set compact=True"):
        mr.Topic("prices", Price, key="article", tombstones=True)
    with pytest.raises(DefinitionError, match="a field besides the key"):
        mr.Topic("prices", Only, key="article", compact=True, tombstones=True)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Annotated[Decimal, pl.Decimal(10, 2)], Decimal("1.50")),
        (Decimal, Decimal("0.000000001")),
        (date, date(2024, 1, 2)),
        (time, time(1, 2, 3, 4)),
        (timedelta, timedelta(microseconds=-5)),
        (datetime, datetime(2024, 1, 1, 1, 1, 1, 123_000, UTC)),
        (Annotated[datetime, pl.Datetime("us")], datetime(2024, 1, 1, 1, 1, 1, 123_456)),  # noqa: DTZ001
        (Annotated[datetime, pl.Datetime("us", "Europe/Helsinki")], datetime(2024, 7, 1, 1, tzinfo=UTC)),
        (Colour, "red"),
        (Annotated[str, pl.Categorical], "x"),
        (bool, True),
        (Annotated[int, pl.Int8], -5),
    ],
    ids=str,
)
def test_a_tombstone_has_the_key_of_the_record_that_it_deletes(hint: Any, value: Any) -> None:
    kind = make_dataclass("Keyed", [("key", hint), ("n", int | None)])
    topic = mr.Topic("keyed", kind, key="key", compact=True, tombstones=True)
    frame = pl.DataFrame({"key": [value], "n": [1]}, topic.schema).with_columns(
        event_time=pl.lit(0, pl.Int64)
    )
    keys = encode(topic, frame).keys
    assert keys is not None
    deleted = Records(np.arange(1), np.zeros(1, np.int64), keys, pa.array([None], pa.binary()))
    assert decode(topic, 0, deleted).rows["key"].equals(frame["key"])
