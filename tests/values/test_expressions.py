"""Columns as in polars, and expressions that look across rows, which every operator refuses."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, patterns, watermarks, windows
from millrace.errors import DefinitionError
from millrace.stream import Stream
from millrace.values import expressions


@dataclass
class Ride:
    who: str
    cell: int
    speed: float | None
    fast: bool
    tags: list[str]
    at: datetime


RIDES = mr.Topic("rides", Ride)
TIMES = ["event_time", "ingestion_time"]
SCHEMA = {
    "a": pl.Int64(),
    "b": pl.Int64(),
    "l": pl.List(pl.Int64()),
    "s": pl.String(),
    "t": pl.Datetime("ms", "UTC"),
}
A, B, L, S, T = (pl.col(name) for name in SCHEMA)


def rides() -> Stream:
    return mr.read(RIDES)


@pytest.mark.parametrize(
    ("made", "columns"),
    [
        (lambda: rides().select("who", "cell"), ["who", "cell"]),
        (lambda: rides().select(["who", "cell"]), ["who", "cell"]),
        (lambda: rides().select(("who",), ["cell"]), ["who", "cell"]),
        (lambda: rides().select(name for name in ("who", "cell")), ["who", "cell"]),
        (lambda: rides().select(pl.col("who")), ["who"]),
        (lambda: rides().select(pl.col("who", "cell")), ["who", "cell"]),
        (lambda: rides().select([pl.col("who"), "cell"], twice=pl.col("cell") * 2), ["who", "cell", "twice"]),
        (lambda: rides().select(driver="who", one=1), ["driver", "one"]),
        (lambda: rides().select(pl.exclude("tags", "at", "fast", *TIMES)), ["who", "cell", "speed"]),
        (lambda: rides().select(pl.when(pl.col("fast")).then(1).alias("x")), ["x"]),
        (lambda: rides().select("who", "event_time"), ["who", "event_time"]),
    ],
)
def test_select_takes_names_lists_and_expressions_as_polars_does(made: Any, columns: list[str]) -> None:
    assert made().columns == [*columns, *(time for time in TIMES if time not in columns)]


def test_types_of_selected_columns_are_derived() -> None:
    schema = rides().select(["who"], pl.col("cell") / 2, one=1, word=pl.lit("x")).node.schema
    assert [schema[name] for name in ("who", "cell", "one", "word")] == [
        pl.String(),
        pl.Float64(),
        pl.Int32(),
        pl.String(),
    ]


def test_with_columns_takes_lists_and_constants_as_polars_does() -> None:
    made = rides().with_columns(
        [pl.col("cell").alias("copy"), (pl.col("cell") + 1).alias("next")], driver="who", one=1
    )
    assert made.columns == [*rides().columns, "copy", "next", "driver", "one"]


def test_an_expression_over_all_columns_leaves_the_columns_of_millrace_alone() -> None:
    numbers = rides().select("cell", "speed")
    doubled = numbers.with_columns(pl.col("cell", "speed") * 2)
    frame = pl.DataFrame(
        {"cell": [1], "speed": [2.0], "event_time": [3], "ingestion_time": [4], "_part": [5], "_off": [6]}
    )
    assert doubled.node.apply(frame).rows(named=True) == [  # type: ignore[attr-defined] # a stateless step
        {"cell": 2, "speed": 4.0, "event_time": 3, "ingestion_time": 4, "_part": 5, "_off": 6}
    ]
    every = numbers.select(pl.all().exclude(TIMES) * 2)
    assert every.node.apply(frame).rows(named=True) == doubled.node.apply(frame).rows(named=True)  # type: ignore[attr-defined] # as above


def test_filter_takes_names_lists_and_values() -> None:
    frame = pl.DataFrame({"who": ["a", "b", "a"], "fast": [True, True, False], "cell": [1, 2, 3]})
    for step in (
        rides().filter("fast", who="a"),
        rides().filter(["fast", pl.col("who") == "a"]),
        rides().filter(pl.col("cell") > 0, pl.col("cell") < 2),
    ):
        assert step.node.apply(frame)["cell"].to_list() == [1]  # type: ignore[attr-defined] # a stateless step


def test_keys_and_names_of_columns_may_be_lists_or_plain_columns() -> None:
    windowed = rides().window(windows.fixed("1m"))
    assert (
        windowed.group_by(["who", "cell"]).keys
        == windowed.group_by("who", pl.col("cell")).keys
        == ("who", "cell")
    )
    assert (
        rides().explode(["tags"]).node.schema["tags"]
        == rides().explode(pl.col("tags")).node.schema["tags"]
        == pl.String()
    )
    assert windowed.group_by("who").top(3, ["cell"], by="speed").columns[:2] == ["who", "top"]
    assert rides().group_by("who").deduplicate(["cell", "event_time"], within="1m").columns == rides().columns
    assert rides().union([rides(), rides()]).columns == rides().columns


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rides().select(None), r"select\(None\) has no type"),
        (lambda: rides().with_columns(x=None), r"with_columns\(x=None\) has no type"),
        (lambda: rides().select({"who": 1}), "is not a column"),
        (lambda: rides().with_columns(x=pl.Series([1])), "is not a column"),
        (lambda: rides().select("nobody"), "there is no column 'nobody'; there are who, .*"),
        (lambda: rides().filter(3), "is not a condition"),
        (lambda: rides().filter("who"), "does not fit the columns"),
        (lambda: rides().filter(who=pl.col("cell")), "only plain values can be compared this way"),
        (lambda: rides().group_by("who", "who"), "names a column twice"),
        (lambda: rides().explode(pl.col("tags").list.len()), "needs names of columns"),
        (lambda: rides().union("rides"), "is not a stream"),  # type: ignore[arg-type]
        (
            lambda: rides().window(windows.fixed("1m")).group_by("who").aggregate(aggregates.count()),
            "needs a name",
        ),
    ],
)
def test_what_is_not_a_column_is_refused_in_one_line(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


ACROSS = [
    *(
        A.sum(),
        A.cum_sum(),
        A.shift(),
        A.sum().over("b"),
        A.rank(),
        A.sort(),
        A.unique(),
        A.diff(),
        A - A.mean(),
        A.first(),
        A.reverse(),
    ),
    *(
        pl.len(),
        A.is_in(B),
        A.fill_null(strategy="forward"),
        A.is_first_distinct(),
        A.sample(1),
        A.rolling_mean(2),
        A.head(1),
    ),
    *(
        pl.when(A.max() < A).then(1).otherwise(2),
        pl.int_range(pl.len()),
        A.fill_null(A.shift()),
        A.n_unique() + 1,
        S.str.to_datetime(),
    ),
    *(
        A.sort_by("b"),
        A.gather(0),
        A.interpolate(),
        A.ewm_mean(com=1),
        A.is_duplicated(),
        A.arg_max(),
        A.any(),
        A.drop_nulls(),
        pl.col("a", "b").max(),
    ),
    *(
        A.map_batches(lambda s: s.cum_sum(), return_dtype=pl.Int64),
        A.filter(A > 1),
        L.explode(),
        pl.struct("a", B.max()),
        pl.corr("a", "b"),
    ),
    *(
        pl.col("a", "b").sum(),
        pl.col("a", "b").cum_sum(),
        A.value_counts(),
        A.rle(),
        A.implode(),
        A.peak_max(),
        A.shuffle(),
    ),
]
BY_ROW = [
    *(
        A + 1,
        pl.lit(3),
        L.list.sum(),
        A.is_in([1, 2]),
        pl.when(A > 1).then(1).otherwise(2),
        L.list.eval(pl.element().cum_sum()),
        A // B,
    ),
    *(
        pl.concat_list("a", "b"),
        A.fill_null(0),
        A.replace_strict({1: 2}),
        A.replace({1: 2}),
        pl.all_horizontal(A > 1, B > 1),
        S.str.split(","),
    ),
    *(
        pl.struct("a", "b"),
        A.clip(0, 1),
        A.hash(),
        S.str.to_datetime("%Y-%m-%d"),
        S.str.json_decode(pl.Int64),
        A.cast(pl.String),
        A.is_in(L),
    ),
    *(
        pl.sum_horizontal("a", "b"),
        pl.coalesce("a", "b"),
        pl.format("{}-{}", "a", "s"),
        L.list.get(0),
        T.dt.epoch("ms"),
        T.dt.truncate("1h"),
    ),
    *(
        A.is_between(1, 2),
        pl.col("a", "b") * 2,
        pl.all(),
        S.cast(pl.Int64, strict=False),
        S.str.extract("(a)"),
        A.round(1),
    ),
    *(
        A.map_elements(lambda x: x, return_dtype=pl.Int64),
        A.map_batches(lambda s: s, return_dtype=pl.Int64, is_elementwise=True),
        A.abs().sqrt(),
    ),
]


@pytest.mark.parametrize("expr", ACROSS, ids=lambda expr: str(expr)[:60])
def test_an_expression_across_rows_is_not_elementwise(expr: pl.Expr) -> None:
    assert not expressions.is_elementwise(expr, SCHEMA)


@pytest.mark.parametrize("expr", BY_ROW, ids=lambda expr: str(expr)[:60])
def test_an_expression_on_the_row_alone_is_elementwise(expr: pl.Expr) -> None:
    assert expressions.is_elementwise(expr, SCHEMA)


SUM = pl.col("cell").sum()
PATTERN = mr.pattern("a", pl.col("cell") > 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rides().with_columns(x=SUM),
        lambda: rides().select("who", x=pl.col("cell") - SUM),
        lambda: rides().filter(pl.col("cell") == SUM),
        lambda: rides().filter(pl.col("who").is_first_distinct()),
        lambda: rides().window(windows.fixed("1m", offset=SUM)).group_by("who").count(),
        lambda: rides().window(windows.punctuated(pl.col("cell") > SUM)).group_by("who").count(),
        lambda: mr.read(RIDES, watermark=watermarks.punctuation(SUM)),
        lambda: mr.table(mr.Topic("rides", Ride, key="who"), deleted=pl.col("cell") > SUM),
        lambda: (
            rides()
            .group_by("who")
            .match(mr.pattern("a", pl.col("cell") > SUM).within("1m"), select={"n": patterns.count("a")})
        ),
        lambda: (
            rides().group_by("who").match(PATTERN.within("1m"), select={"n": patterns.count("a").cum_sum()})
        ),
        lambda: (
            rides()
            .window(windows.fixed("1m"))
            .group_by("who")
            .count()
            .with_columns(share=pl.col("count") / pl.col("count").sum())
        ),
    ],
)
def test_no_operator_takes_an_expression_across_rows(make: Any) -> None:
    with pytest.raises(
        DefinitionError, match="looks across rows, so its value would depend on how batches are cut"
    ) as raised:
        make()
    assert "\n" not in str(raised.value)
