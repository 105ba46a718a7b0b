"""Results of user code become columns exactly, or are refused."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, testing, watermarks, windows
from millrace.errors import DefinitionError, InputError
from millrace.processors import Context
from millrace.runners.replay import replay_all
from millrace.stream import Job, Stream
from millrace.timestamps import TimeDomain
from millrace.values import function_results
from millrace.values.expressions import DType

AT = datetime(2024, 3, 1, 12, 0, 0, 123_456)  # noqa: DTZ001 - a time without a zone
STAMP = pl.Datetime("ms", "UTC")


@pytest.mark.parametrize(("value", "dtype", "made"), [
    (3, pl.Int64(), 3), (3.0, pl.Int64(), 3), ("3", pl.Int64(), 3), (Decimal(3), pl.Int8(), 3),
    (np.int64(3), pl.Int64(), 3),
    (-128, pl.Int8(), -128), (2**64 - 1, pl.UInt64(), 2**64 - 1), (None, pl.Int64(), None),
    (3, pl.Float64(), 3.0), (Decimal("1.5"), pl.Float64(), 1.5), (1, pl.Boolean(), True),
    (7, pl.String(), "7"),
    (AT, STAMP, datetime(2024, 3, 1, 12, 0, 0, 123_000, UTC)),
    (1_000, STAMP, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    (AT.replace(tzinfo=timezone(timedelta(hours=2))), STAMP, datetime(2024, 3, 1, 10, 0, 0, 123_000, UTC)),
    (date(2024, 3, 1), STAMP, datetime(2024, 3, 1, tzinfo=UTC)), ([1.0, 2], pl.List(pl.Int64()), [1, 2]),
    ({"a": 1.0, "b": 9}, pl.Struct({"a": pl.Int64()}), {"a": 1}),
])  # fmt: skip
def test_a_conversion_that_keeps_the_value_is_allowed(value: Any, dtype: pl.DataType, made: Any) -> None:
    column = function_results.to_series("x", [value, None], dtype)
    assert (column.dtype, column.to_list()) == (dtype, [made, None])


@pytest.mark.parametrize(("value", "dtype"), [
    (3.7, pl.Int64()), ("3.7", pl.Int64()), (2**63, pl.Int64()), (-1, pl.UInt8()), (128, pl.Int8()),
    (float("nan"), pl.Int64()),
    (Decimal("1.5"), pl.Int64()), (1e300, pl.Float32()), ("x", pl.Float64()), (2, pl.Boolean()),
    ("2024-03-01T12:00:00", STAMP),
    (1.5, STAMP), ([1.5], pl.List(pl.Int64())), (["a"], pl.String()), (True, pl.String()),
    (b"a", pl.String()), ({"a": 1.5}, pl.Struct({"a": pl.Int64()})),
])  # fmt: skip
def test_a_conversion_that_loses_value_is_refused_with_column_and_value(
    value: Any, dtype: pl.DataType
) -> None:
    with pytest.raises(ValueError, match=r"column 'x': .* is not exactly a value of"):
        function_results.to_series("x", [value], dtype)


@dataclass
class Word:
    word: str
    size: int | None
    at: datetime | None


WORDS = mr.Topic("words", Word, key="word")
SIZES = mr.Topic("sizes", Word, key="word")
FRAME = pl.DataFrame({"word": ["a"], "size": [1], "at": [AT], "event_time": [1_000]}).with_columns(
    at=pl.col("at").dt.truncate("1ms")
)


def read() -> Stream:
    return mr.read(WORDS, watermark=watermarks.bounded("1s"))


def resize_word(size: Any) -> Iterator[dict[str, Any]]:
    yield {"word": "b", "size": size, "at": None}


def test_a_fraction_in_a_whole_number_column_of_flat_map_is_refused() -> None:
    schema: dict[str, DType] = {"word": pl.String, "size": int, "at": STAMP}

    def job(size: Any) -> Job:
        return Job("sizes", read().flat_map(lambda _row: resize_word(size), schema=schema).write(SIZES))

    assert mr.replay(job(3.0), FRAME)["size"].to_list() == [3]
    with pytest.raises(ValueError, match=r"column 'size': 3\.7 is not exactly a value of Int64"):
        mr.replay(job(3.7), FRAME)


class Answer(aggregates.Aggregate):
    returns = pl.Int64()

    def create(self) -> float:
        return 0.7

    def add(self, state: float, value: float) -> float:
        return state + value

    def merge(self, one: float, other: float) -> float:
        return one + other

    def result(self, state: float) -> float:
        return state


@dataclass
class Total:
    word: str
    total: int | None


TOTALS = mr.Topic("totals", Total, key="word")


def test_a_fraction_as_the_whole_number_of_a_user_defined_aggregate_is_refused() -> None:
    job = Job(
        "totals",
        read().window(windows.fixed("10s")).group_by("word").aggregate(total=Answer("size")).write(TOTALS),
    )
    with pytest.raises(ValueError, match=r"1\.7 is not exactly a value of Int64"):
        mr.replay(job, FRAME)


class Waits(mr.Processor):
    """Sets a timer, and emits when it fired."""

    outputs: ClassVar = {"total": pl.Int64}

    def __init__(self, time: TimeDomain, at: Any) -> None:
        self.time, self.at = time, at

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        ctx.set_timer("t", self.at, time=self.time)

    def on_timer(self, ctx: Context, name: str) -> None:
        assert ctx.time_domain == self.time
        ctx.emit(total=ctx.time if self.time == "event" else ctx.now)


def waiting(on: testing.On, time: TimeDomain, at: Any) -> testing.Script:
    script = testing.Script(
        Job("waits", read().group_by("word").process(Waits(time, at)).write(TOTALS)), on=on
    )
    script.events({"word": "a", "size": 1, "event_time": 1_000, "ingestion_time": 1_000})
    return script


FIVE = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
HELSINKI = timezone(timedelta(hours=2))


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize("at", [5_000, FIVE, FIVE.astimezone(HELSINKI), FIVE.replace(tzinfo=None)])
@pytest.mark.parametrize("time", ["event", "processing"])
def test_a_timer_takes_a_datetime_by_its_zone(on: testing.On, time: TimeDomain, at: Any) -> None:
    script = waiting(on, time, at)
    script.clock(4_999)
    if time == "processing":
        script.watermark(2_000)
        assert script.panes() == []
        script.clock(5_000)
    script.end()
    assert [pane["total"] for pane in script.panes()] == [5_000]


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize(
    "at", [1500.7, FIVE + timedelta(microseconds=1), None, "soon", 2**70, 2**63 - 1, -(2**62)]
)
@pytest.mark.parametrize("time", ["event", "processing"])
def test_a_timer_refuses_what_is_not_a_whole_millisecond(on: testing.On, time: TimeDomain, at: Any) -> None:
    script = waiting(on, time, at)
    with pytest.raises(DefinitionError, match=r"set_timer\('t', .*\): that is not a time"):
        script.end()


@dataclass
class Part:
    size: int
    at: datetime | None


@dataclass
class Portion:
    word: str
    share: float | None
    part: Part | None
    parts: list[Part]


SHARES, ASIDE = mr.Topic("shares", Portion, key="word"), mr.Topic("aside", Portion, key="word")
PART = pl.Struct({"size": pl.Int64(), "at": STAMP})
COLUMNS: dict[str, DType] = {"share": pl.Float32, "part": PART, "parts": pl.List(PART)}


class Emits(mr.Processor):
    outputs: ClassVar = COLUMNS
    side_outputs: ClassVar = {"aside": COLUMNS}

    def __init__(self, values: dict[str, Any], port: str) -> None:
        self.values, self.port = {"share": None, "part": None, "parts": [], **values}, port

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        if self.port == "out":
            ctx.emit(**self.values)
        else:
            ctx.emit(to=self.port, **self.values)


def emit(values: dict[str, Any], port: str) -> dict[str, Any]:
    """The row that a job writes of the values that its processor emits."""
    made = read().group_by("word").process(Emits(values, port))
    whole = [
        stream.with_columns(pl.col("share").cast(pl.Float64)) for stream in (made, made.side_output("aside"))
    ]
    found = replay_all(Job("shares", whole[0].write(SHARES), whole[1].write(ASIDE)), FRAME).outputs
    [row] = found["shares" if port == "out" else "aside"].select(*COLUMNS).to_dicts()
    return row


@pytest.mark.parametrize("port", ["out", "aside"])
def test_nested_and_32_bit_values_that_a_processor_emits_are_exact(port: str) -> None:
    utc = AT.replace(tzinfo=UTC, microsecond=123_000)
    part = {"size": 3.0, "at": AT.replace(tzinfo=HELSINKI), "unknown": 1}
    row = emit({"share": 0.5, "part": part, "parts": [part, {"size": 4}, None]}, port)
    kept = {"size": 3, "at": utc - timedelta(hours=2)}
    assert row == {"share": 0.5, "part": kept, "parts": [kept, {"size": 4, "at": None}, None]}
    assert emit({}, port) == {"share": None, "part": None, "parts": []}


@pytest.mark.parametrize("port", ["out", "aside"])
@pytest.mark.parametrize(("column", "value"), [
    ("share", 1e300), ("share", "x"), ("part", {"size": 3.7}), ("part", {"size": 2**63}),
    ("parts", [{"size": 1}, {"size": 0.5}]), ("part", {"size": 1, "at": "noon"}),
])  # fmt: skip
def test_a_value_that_a_processor_emits_and_that_would_lose_is_refused_with_its_column(
    port: str, column: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=f"column '{column}': .* is not exactly a value of"):
        emit({column: value}, port)


@pytest.mark.parametrize("made", [
    pl.col("at"), pl.col("at").dt.cast_time_unit("us"), pl.col("at").dt.date(), pl.col("event_time") / 2,
    pl.col("size").cast(pl.Int32),
])  # fmt: skip
def test_an_event_time_that_is_not_in_whole_milliseconds_is_refused_where_the_job_is_defined(
    made: pl.Expr,
) -> None:
    with pytest.raises(DefinitionError, match=r"makes event_time .* say event_time=.*dt\.epoch"):
        read().with_columns(event_time=made)


def test_rows_that_lose_their_event_time_are_an_error() -> None:
    job = Job(
        "none",
        read()
        .with_columns(event_time=pl.col("size") // 0)
        .window(windows.fixed("10s"))
        .group_by("word")
        .count(name="total")
        .write(TOTALS),
    )
    with pytest.raises(InputError, match="1 rows have no event_time"):
        mr.replay(job, FRAME)


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize("says", [
    pl.col("at"), pl.col("at").dt.cast_time_unit("us"), pl.col("at").dt.cast_time_unit("ns"),
    pl.col("at").dt.cast_time_unit("us").dt.convert_time_zone("Europe/Helsinki"), pl.col("at").dt.epoch("ms"),
])  # fmt: skip
def test_a_punctuation_counts_by_its_unit_and_zone(on: testing.On, says: pl.Expr) -> None:
    rows = mr.read(WORDS, watermark=watermarks.punctuation(says))
    script = testing.Script(
        Job("totals", rows.window(windows.fixed("10s")).group_by("word").count(name="total").write(TOTALS)),
        on=on,
        watermarks="own",
    )
    at = datetime(1970, 1, 1, 0, 0, 9, 999_000, tzinfo=UTC)
    script.events({"word": "a", "size": 1, "at": at, "event_time": 10_000})
    script.events(
        {"word": "a", "size": 1, "at": None, "event_time": 9_999},
        {"word": "a", "size": 1, "at": None, "event_time": 9_998},
    )
    assert [late["event_time"] for late in script.late()] == []
    assert script.panes() == []
    script.events({"word": "a", "size": 1, "at": at + timedelta(milliseconds=1), "event_time": 10_001})
    assert [pane["total"] for pane in script.panes()] == [2]


@pytest.mark.parametrize(
    "says", [pl.col("event_time") / 2, pl.col("word"), pl.col("size") > 1, pl.col("at") - pl.col("at")]
)
def test_a_punctuation_that_is_not_a_time_is_refused_where_the_job_is_defined(says: pl.Expr) -> None:
    with pytest.raises(DefinitionError, match="which is not a time; use a datetime, or whole milliseconds"):
        mr.read(WORDS, watermark=watermarks.punctuation(says))
