"""Column types from end to end: every type through every operator, on the engine and the model, with restarts
in between; and through a log, from a line of JSON to a dead letter.
"""

import enum
from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeAlias

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from millrace import aggregates, frames, patterns, state, testing, windows
from millrace.errors import DefinitionError
from millrace.stream import Stream
from strategies import examples


class Colour(enum.StrEnum):
    """In alphabetical order, as the model compares texts."""

    BLUE = "blue"
    GREEN = "green"
    RED = "red"


TYPES: dict[str, tuple[Any, list[Any]]] = {
    "decimal": (Annotated[Decimal, pl.Decimal(12, 2)], [Decimal("1.50"), Decimal("2.25"), Decimal("-3.10")]),
    "wide_decimal": (
        Decimal,
        [Decimal("1.500000001"), Decimal("22222222222222222222.25"), Decimal("-3.1")],
    ),
    "date": (date, [date(2024, 1, 2), date(2024, 5, 1), date(1950, 1, 1)]),
    "time": (time, [time(1, 2, 3, 4), time(2, 2), time()]),
    "duration": (timedelta, [timedelta(microseconds=1), timedelta(days=1), timedelta(seconds=-5)]),
    "millis": (
        datetime,
        [
            datetime(2024, 1, 1, tzinfo=UTC),
            datetime(2024, 1, 2, tzinfo=UTC),
            datetime(1950, 1, 2, tzinfo=UTC),
        ],
    ),
    "micros": (
        Annotated[datetime, pl.Datetime("us")],
        [datetime(2024, 1, 1, 1, 1, 1, 1), datetime(2024, 1, 2), datetime(1950, 1, 2)],  # noqa: DTZ001
    ),
    "zoned": (
        Annotated[datetime, pl.Datetime("us", "Europe/Helsinki")],
        [
            datetime(2024, 1, 1, 1, 1, 1, 1, UTC),
            datetime(2024, 1, 2, tzinfo=UTC),
            datetime(1950, 1, 2, tzinfo=UTC),
        ],
    ),
    "enum": (Colour, ["red", "blue", "green"]),
    "categorical": (Annotated[str, pl.Categorical], ["red", "blue", "green"]),
    "small": (Annotated[int, pl.Int8], [1, -5, 7]),
    "unsigned": (Annotated[int, pl.UInt64], [1, 2**62 + 5, 7]),
}
AMOUNTS = mr.Topic(
    "amounts",
    make_dataclass(
        "Amount",
        [
            ("k", str),
            ("n", int),
            ("v", Annotated[Decimal | None, pl.Decimal(10, 2)]),
            ("w", timedelta | None),
        ],
    ),
)
NUMBERS = ("decimal", "wide_decimal", "duration", "small", "unsigned")
W = windows.fixed("10s")
Steps: TypeAlias = Callable[[Stream], Stream]


class Remember(mr.Processor):
    """Shows each value, the one before it, and how many values there were."""

    last = state.value()
    seen: state.ListState[Any] = state.list()
    counts: state.MapState[Any, int] = state.map()

    def __init__(self, dtype: pl.DataType) -> None:
        self.outputs = {"v": dtype, "last": dtype, "n": pl.Int64(), "same": pl.Int64()}  # type: ignore[misc] # of this one

    def process(self, row: dict[str, Any], ctx: mr.Context) -> None:
        """One row."""
        value = row["v"]
        self.seen.append(value)
        if value is not None:
            self.counts[value] = self.counts.get(value, 0) + 1
        ctx.emit(v=value, last=self.last, n=len(self.seen), same=self.counts.get(value, 0))
        self.last = value


def aggregate(**named: aggregates.Reduction) -> Steps:
    return lambda rows: rows.window(W).group_by("k").aggregate(**named)


def match(rows: Stream) -> Stream:
    pattern = mr.pattern("x", pl.col("v").is_not_null()).followed_by(
        "y", pl.col("v") > patterns.first("x", "v")
    )
    columns = {"a": patterns.first("x", "v"), "b": patterns.last("y", "v")}
    return rows.group_by("k").match(pattern.within("6s"), select=columns)


def match_in_sql(rows: Stream) -> Stream:
    return rows.group_by("k").match_recognize(
        "MEASURES A.v AS a, LAST(B.v) AS b PATTERN (A C*? B) WITHIN INTERVAL '6' SECOND "
        "DEFINE A AS v IS NOT NULL, B AS v > A.v"
    )


def chained(rows: Stream) -> Stream:
    shown = rows.window(W, accumulation="retracting").group_by("k", "n").aggregate(v=aggregates.latest("v"))
    return shown.group_by("v").count()


def over(**columns: Any) -> Steps:
    return lambda rows: rows.group_by("k").over(**columns)


PICKS = {pick.__name__: pick("v") for pick in (aggregates.min, aggregates.max, aggregates.latest)}
OPERATORS: dict[str, Steps] = {
    "a key": lambda rows: rows.window(W).group_by("v").count(),
    "part of a key": lambda rows: rows.window(W).group_by("k", "v").count(),
    "picks": aggregate(
        least=aggregates.min("v"),
        most=aggregates.max("v"),
        last=aggregates.latest("v"),
        first=aggregates.earliest("v"),
    ),
    "bags": aggregate(
        all=aggregates.collect("v"),
        different=aggregates.distinct("v"),
        ranks=aggregates.quantiles("v", [0.5, 0.9]),
        frequent=aggregates.top(2, "v"),
        best=aggregates.top(2, "k", by="v"),
    ),
    "sliding windows": lambda rows: (
        rows.window(windows.sliding("10s", every="2s")).group_by("k").aggregate(m=aggregates.max("v"))
    ),
    "sessions": lambda rows: rows.window(windows.sessions("3s")).group_by("v").count(),
    "a chained aggregation": chained,
    "deduplicate": lambda rows: rows.group_by("v").deduplicate(within="10s"),
    "process": lambda rows: rows.group_by("k").process(Remember(rows.node.schema["v"])),
    "an interval join": lambda rows: rows.group_by("v").join(
        rows.select("v", m="n").group_by("v"), within=("-5s", "5s")
    ),
    "a join in windows": lambda rows: (
        rows.window(W).group_by("v").join(rows.select("v", m="n").window(W).group_by("v"))
    ),
    "cogroup": lambda rows: (
        rows.window(W)
        .group_by("k")
        .cogroup(rows.select("k", w="v").window(W).group_by("k"), names=("left", "right"))
    ),
    "row frames": over(before=frames.lag("v"), after=frames.lead("v", within="5s"), **PICKS, rows=3),
    "row frames by range": over(all=aggregates.collect("v"), first=frames.first("v"), **PICKS, range="4s"),
    "row frames without a beginning": over(**PICKS, n_of=aggregates.count("v")),
    "row frames by type": lambda rows: rows.group_by("v").over(number=frames.row_number()),
    "corrected row frames": over(before=frames.lag("v"), **PICKS, lateness="5s"),
    "stateless steps": lambda rows: rows.filter(pl.col("v").is_not_null()).select("k", w=pl.col("v")),
    "match": match,
    "match_recognize": match_in_sql,
}
SUMS: dict[str, Steps] = {
    "sums": aggregate(total=aggregates.sum("v"), mean=aggregates.mean("v")),
    "sums in sliding windows": lambda rows: (
        rows.window(windows.sliding("10s", every="2s"))
        .group_by("k")
        .aggregate(total=aggregates.sum("v"), mean=aggregates.mean("v"))
    ),
    "running sums": over(total=aggregates.sum("v"), mean=aggregates.mean("v")),
    "sums of rows": over(total=aggregates.sum("v"), mean=aggregates.mean("v"), rows=3),
    "sums of sums": lambda rows: (
        rows.window(W, accumulation="retracting")
        .group_by("k", "n")
        .aggregate(v=aggregates.sum("v"))
        .group_by("k")
        .aggregate(total=aggregates.sum("v"), mean=aggregates.mean("v"))
    ),
}


def topic_of(kind: str) -> mr.Topic:
    hint, _ = TYPES[kind]
    fields = [("k", str | None), ("n", int), ("v", hint | None)]
    return mr.Topic(f"in.{kind}", make_dataclass("Row", fields), partitions=2)


def results(kinds: list[str], steps: Steps, on: testing.On) -> list[str]:
    """What jobs over topics of these types show of 20 events, with restarts between them."""
    jobs = [mr.Job(kind, steps(mr.read(topic_of(kind))).write(f"out.{kind}")) for kind in kinds]
    script = testing.Script(*jobs, on=on, partitions=2)

    def give(numbers: range) -> None:
        for kind in kinds:
            values = [*TYPES[kind][1], None]
            for n in numbers:
                event = {"k": None if n % 5 == 0 else "ab"[n % 2], "n": n % 3, "v": values[n % 4]}
                script.events({**event, "event_time": 1_000 * n}, topic=f"in.{kind}", partition=n % 2)
        script.restart()

    give(range(8))
    script.watermark("7s")
    script.restart()
    give(range(8, 20))
    script.watermark("15s")
    script.restart()
    script.end()
    return sorted(map(str, script.panes()))


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_type_passes_every_operator(operator: str) -> None:
    steps = OPERATORS[operator]
    shown = results(list(TYPES), steps, "engine")
    assert shown
    assert shown == results(list(TYPES), steps, "model")


@pytest.mark.parametrize("operator", SUMS)
def test_numbers_and_durations_are_summed_exactly(operator: str) -> None:
    kinds = [kind for kind in NUMBERS if kind != "unsigned"]
    shown = results(kinds, SUMS[operator], "engine")
    assert shown
    assert shown == results(kinds, SUMS[operator], "model")


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in NUMBERS])
def test_what_cannot_be_summed_is_refused_where_the_job_is_built(kind: str) -> None:
    with pytest.raises(DefinitionError, match=r"sum\('v'\) needs numbers, but 'v' is .*; cast it first"):
        SUMS["sums"](mr.read(topic_of(kind)))


@pytest.mark.parametrize("kind", TYPES)
def test_the_types_of_results_are_those_of_their_columns(kind: str) -> None:
    rows = mr.read(topic_of(kind))
    dtype = rows.node.schema["v"]
    picked = OPERATORS["picks"](rows).write("out")
    assert set(picked.topic.schema.values()) == {pl.String(), dtype}
    assert OPERATORS["bags"](rows).write("out").topic.schema["all"] == pl.List(dtype)


def test_sums_and_means_of_decimals_are_decimals() -> None:
    schema = SUMS["sums"](mr.read(topic_of("decimal"))).node.schema
    assert (schema["total"], schema["mean"]) == (pl.Decimal(38, 2), pl.Decimal(38, 6))


def test_a_pattern_refuses_sums_of_times() -> None:
    pattern = mr.pattern("x").followed_by("y", pl.col("v") > patterns.sum("x", "v")).within("1m")
    with pytest.raises(DefinitionError, match="make a column of numbers first"):
        mr.read(topic_of("duration")).group_by("k").match(pattern, select={"v": patterns.last("y", "v")})


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.none() | st.decimals(-(10**6), 10**6, places=2),
        st.none() | st.timedeltas(timedelta(-9), timedelta(9)),
        st.integers(0, 40),
        st.sampled_from(["", "restart", "watermark"]),
    ),
    min_size=1,
    max_size=15,
)


@given(EVENTS)
@examples(20)
def test_sums_are_exact_whatever_comes_late_and_whenever_it_restarts(events: list[Any]) -> None:
    first = (
        mr.read(AMOUNTS)
        .window(W, lateness="20s", accumulation="retracting")
        .group_by("k", "n")
        .aggregate(v=aggregates.sum("v"), mean=aggregates.mean("v"), w=aggregates.sum("w"))
    )
    second = first.group_by("k").aggregate(
        total=aggregates.sum("v"), mean=aggregates.mean("mean"), waits=aggregates.mean("w")
    )
    shown: list[list[str]] = []
    for on in ("engine", "model"):
        script = testing.Script(mr.Job("sums", first.write("first"), second.write("second")), on=on)
        for number, (key, amount, wait, second_, then) in enumerate(events):
            script.events({"k": key, "n": number % 2, "v": amount, "w": wait, "event_time": 1_000 * second_})
            if then == "restart":
                script.restart()
            if then == "watermark":
                script.watermark(f"{2 * number}s")
        script.end()
        shown.append(sorted(map(str, script.panes())))
    assert shown[0] == shown[1]
