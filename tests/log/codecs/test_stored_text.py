"""Decimals, dates, times and enums in records of every codec."""

import enum
import io
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any

import fastavro
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from millrace.errors import DefinitionError
from millrace.log.codecs import codec
from millrace.log.contract import OutgoingRecords, Records
from millrace.topics import Topic
from strategies import examples

Price = Annotated[Decimal, pl.Decimal(10, 2)]
TIMES = st.times().map(lambda at: at.replace(fold=0))
PRICES = st.decimals(-99_999_999, 99_999_999, places=2)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Part:
    day: date
    price: Price
    at: time


@dataclass
class Sale:
    price: Price
    exact: Decimal | None
    day: date
    at: time
    took: timedelta
    seen: datetime
    micros: Annotated[datetime, pl.Datetime("us", "Europe/Helsinki")]
    local: Annotated[datetime | None, pl.Datetime("us")]
    colour: Colour
    small: Annotated[int, pl.Int8]
    prices: list[Price]
    days: list[date]
    times: list[time]
    part: Part
    parts: list[Part]


MOMENTS = st.datetimes(min_value=datetime(2, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - as hypothesis wants it
SPANS = st.timedeltas(timedelta(days=-9999), timedelta(days=9999))
PARTS = st.fixed_dictionaries({"day": st.dates(), "price": PRICES, "at": TIMES})
SALES = st.fixed_dictionaries(
    {
        "price": PRICES,
        "exact": st.none() | st.decimals(-(10**28), 10**28, places=9),
        "day": st.none() | st.dates(),
        "at": st.none() | TIMES,
        "took": st.none() | SPANS,
        "seen": st.none() | MOMENTS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
        "micros": st.none() | MOMENTS,
        "local": st.none() | st.datetimes(),
        "colour": st.none() | st.sampled_from(["red", "blue"]),
        "small": st.integers(-128, 127),
        "prices": st.lists(PRICES, max_size=3),
        "days": st.lists(st.dates(), max_size=3),
        "times": st.lists(TIMES, max_size=3),
        "part": st.none() | PARTS,
        "parts": st.lists(PARTS, max_size=3),
    }
)


def decode(topic: Topic, records: OutgoingRecords) -> codec.Decoded:
    count = len(records)
    keys = pa.nulls(count, pa.binary()) if records.keys is None else records.keys
    return codec.decode(topic, 0, Records(np.arange(count), np.zeros(count, np.int64), keys, records.values))


def decode_lines(topic: Topic, *lines: bytes) -> codec.Decoded:
    return decode(topic, OutgoingRecords(pa.array(lines, pa.binary()), None))


@pytest.mark.parametrize("kind", ["binary", "json"])
@given(rows=st.lists(SALES, min_size=1, max_size=5))
@examples(30)
def test_what_is_written_is_read(kind: Any, rows: list[dict[str, Any]]) -> None:
    topic = Topic("sales", Sale, key="price", codec=kind)
    frame = pl.DataFrame(rows, topic.schema).with_columns(event_time=pl.lit(5, pl.Int64))
    decoded = decode(topic, codec.encode(topic, frame, ingestion_time=6))
    assert decoded.dead.is_empty()
    assert_frame_equal(decoded.rows.select(topic.schema.names()), frame.drop("event_time"))


def test_records_hold_readable_text() -> None:
    topic = Topic("sales", Part, key="price", codec="json")
    row = {"day": date(2024, 5, 31), "price": Decimal("12.5"), "at": time(8, 15), "event_time": 0}
    records = codec.encode(topic, pl.DataFrame([row], {**topic.schema, "event_time": pl.Int64}))
    assert json.loads(records.values[0].as_py())["details"] == {
        "@type": "type.googleapis.com/millrace.type.Part",
        "day": "2024-05-31",
        "price": "12.50",
        "at": "08:15:00",
    }
    assert records.keys is not None
    assert records.keys.to_pylist() == [b"12.50"]


@dataclass
class Plain:
    ms: int
    unit_price: Price
    others: list[Price]
    day: date | None
    share: float
    took: timedelta | None
    part: Part | None


PLAIN = Topic("plain", Plain, envelope=False, time="ms", codec="json")


def test_numbers_in_json_of_others_are_decimals_with_the_digits_that_were_written() -> None:
    wide = Topic("wide", Wide, envelope=False, time="ms", codec="json")
    decoded = decode_lines(wide, b'{"ms": 1, "n": 1234567890123456789.123456789}')
    assert decoded.rows["n"].to_list() == [Decimal("1234567890123456789.123456789")]
    line = b'{"ms": 1, "unitPrice": 2.50, "others": [1, 2.5e0], "share": 0.1, "took": "3.5s"'
    line += b', "part": {"price": 7}}'
    row = decode_lines(PLAIN, line).rows.row(0, named=True)
    assert (row["unit_price"], row["others"]) == (Decimal("2.50"), [Decimal("1.00"), Decimal("2.50")])
    assert (row["share"], row["took"]) == (0.1, timedelta(seconds=3.5))
    assert row["part"] == {"day": None, "price": Decimal("7.00"), "at": None}


@dataclass
class Wide:
    ms: int
    n: Decimal


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (b'"unit_price": 1.234', "unit_price='1.234' is not exactly a value of Decimal"),
        (b'"unit_price": "x"', "unit_price='x' is not exactly"),
        (b'"unit_price": 123456789', "unit_price='123456789' is not exactly"),
        (b'"day": "2024-02-30"', "day='2024-02-30' is not exactly a value of Date"),
        (b'"others": ["1", "2.345"]', "others=.* is not exactly a value of List"),
        (b'"part": {"price": "1", "day": "soon"}', "part=.* is not exactly a value of Struct"),
    ],
)
def test_what_no_value_is_becomes_a_dead_letter_and_its_neighbours_are_read(
    member: bytes, reason: str
) -> None:
    good = b'{"ms": 1, "unit_price": "1.00"}'
    decoded = decode_lines(PLAIN, good, b'{"ms": 2, ' + member + b"}", good)
    assert decoded.rows["ms"].to_list() == [1, 1]
    [text] = decoded.dead["reason"].to_list()
    assert pl.select(pl.lit(text).str.contains(reason)).item(), text


def test_a_field_that_a_record_lacks_is_0_or_null() -> None:
    row = decode_lines(PLAIN, b'{"ms": 1}').rows.row(0, named=True)
    assert (row["unit_price"], row["day"], row["took"]) == (Decimal("0.00"), None, None)


def test_avro_of_others_is_read() -> None:
    schema = {
        "type": "record",
        "name": "Plain",
        "fields": [
            {"name": "ms", "type": "long"},
            {
                "name": "unit_price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            },
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
    topic = Topic("plain", Plain, envelope=False, time="ms", codec="avro", avro=json.dumps(schema))
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out,
        fastavro.parse_schema(schema),
        {"ms": 1, "unit_price": Decimal("12.50"), "day": date(2024, 5, 31)},
    )
    row = decode_lines(topic, out.getvalue()).rows.row(0, named=True)
    assert (row["unit_price"], row["day"]) == (Decimal("12.50"), date(2024, 5, 31))


@pytest.mark.parametrize(
    ("column", "values", "dtype"),
    [
        ("price", [Decimal("1.234")], pl.Decimal(10, 3)),
        ("price", [10**9], pl.Int64),
        ("seen", [datetime(2024, 1, 1, 0, 0, 0, 1)], pl.Datetime("us")),  # noqa: DTZ001 - a column without a zone
        ("colour", ["green"], pl.String),
        ("small", [300], pl.Int64),
    ],
)
def test_a_value_that_does_not_fit_exactly_is_refused_where_it_is_written(
    column: str, values: list[Any], dtype: Any
) -> None:
    topic = Topic("sales", Sale)
    frame = pl.DataFrame({column: values}, {column: dtype}).with_columns(
        event_time=pl.lit(0, pl.Int64), price_=pl.lit(0)
    )
    missing = [
        pl.lit(0).cast(kind).alias(name) if name in ("price", "small") else pl.lit(None, kind).alias(name)
        for name, kind in topic.schema.items()
        if name != column
    ]
    with pytest.raises(DefinitionError, match=f"column '{column}' is .* does not fit"):
        codec.encode(topic, frame.with_columns(missing))
