"""Topics that take the columns of what is written to them."""

import pickle
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import millrace as mr
from millrace import aggregates, windows
from millrace.errors import DefinitionError, TopicMismatch
from millrace.log import Records, open_log
from millrace.log.codecs import codec
from millrace.stream import Output, Stream
from millrace.topics import Topic
from millrace.values import event_types


@dataclass
class Sale:
    shop: str | None
    price: Annotated[Decimal, pl.Decimal(10, 2)]
    tags: list[str]


SALES = Topic("input.sales", Sale, key="shop")


def totals() -> Stream:
    return (
        mr.read(SALES)
        .window(windows.fixed("10s"))
        .group_by("shop")
        .aggregate(total=aggregates.sum("price"), best=aggregates.top(1, "price", by="price"))
    )


def test_a_name_takes_the_columns_of_the_stream() -> None:
    output = totals().write("analytics.totals")
    assert output.topic.schema == pl.Schema(
        {
            "shop": pl.String(),
            "total": pl.Decimal(38, 2),
            "best": pl.List(pl.Struct({"price": pl.Decimal(10, 2)})),
        }
    )
    assert output.topic.type_name == "millrace.type.AnalyticsTotals"


def test_another_job_reads_the_same_topic() -> None:
    topic = Topic("analytics.totals", key="shop", codec="json")
    output = totals().write(topic)
    assert (output.topic.key, output.topic.codec) == ("shop", "json")
    assert mr.read(topic).columns == mr.read(output.topic).columns
    assert mr.table(topic).changes.columns[:2] == ["shop", "total"]


def test_a_topic_without_a_type_is_read_only_behind_what_writes_it() -> None:
    with pytest.raises(DefinitionError, match=r"has no type, and no job .* Topic\('nowhere', Type\)"):
        mr.read(Topic("nowhere"))
    with pytest.raises(DefinitionError, match="so there is no stream to take columns from; give the type"):
        Topic("foreign", codec="avro", avro="{}", envelope=False, time="at")


def test_all_streams_of_a_topic_have_the_same_columns() -> None:
    topic = Topic("analytics.all")
    assert mr.read(SALES).write(topic).topic == mr.read(SALES).write(topic).topic
    with pytest.raises(DefinitionError, match=r"another stream writes .*shop String, .*make them alike"):
        mr.read(SALES).select("shop").write(topic)


def test_a_key_must_be_a_column() -> None:
    with pytest.raises(
        DefinitionError, match="key='city' is not a field of Totals; it has shop, total, best"
    ):
        totals().write(Topic("totals", key="city"))


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"my shop": pl.col("shop")}, "the column 'my shop' cannot be the name of a field; rename it"),
        ({"class": pl.col("shop")}, "the column 'class' cannot be the name of a field"),
        ({"x": pl.lit(None)}, "x is Null, .* it is always null, so its type is unknown; cast it"),
        ({"x": pl.lit(1).cast(pl.Int128)}, "x is Int128, which no field can hold: cast it before"),
        ({"x": pl.lit(1).cast(pl.Datetime("ns"))}, "counts nanoseconds, .* use the unit 'us'"),
    ],
)
def test_a_column_that_no_field_can_hold_is_refused(columns: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        mr.read(SALES).select(**columns).write("out")


def test_a_list_of_lists_is_refused() -> None:
    rows = mr.read(SALES).map_batches(
        lambda frame: frame.with_columns(x=pl.concat_list(pl.col("tags").implode()))
    )
    with pytest.raises(DefinitionError, match="make a list of structs of it, or explode"):
        rows.write("out")


def test_nulls_lists_and_structs_come_back_from_the_log() -> None:
    topic = totals().write(Topic("analytics.totals", key="shop")).topic
    frame = pl.DataFrame(
        {
            "shop": [None, "a"],
            "total": [Decimal("1.50"), None],
            "best": [[{"price": Decimal("1.50")}], []],
            "event_time": [0, 1],
        },
        {**topic.schema, "event_time": pl.Int64},
    )
    records = codec.encode(topic, frame)
    keys = pa.nulls(2, pa.binary()) if records.keys is None else records.keys
    decoded = codec.decode(topic, 0, Records(np.arange(2), np.zeros(2, np.int64), keys, records.values))
    assert decoded.rows.select(frame.columns).equals(frame)


def test_an_inferred_topic_is_stored_like_any_other(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path}")
    log.ensure(totals().write(Topic("analytics.totals")).topic)
    assert log.describe("analytics.totals").type_name == "millrace.type.AnalyticsTotals"
    declared = Topic("analytics.totals")
    totals().write(declared)
    log.ensure(declared)
    longer = totals().with_columns(n=pl.lit(1, pl.Int64)).write(Topic("analytics.totals"))
    log.ensure(longer.topic)
    other = totals().select("total", "shop", "best").write(Topic("analytics.totals"))
    with pytest.raises(TopicMismatch, match="append new fields at the end"):
        log.ensure(other.topic)
    nested = totals().with_columns(
        best=pl.col("best").list.eval(pl.struct(pl.element().struct.field("price"), a=1))
    )
    with pytest.raises(TopicMismatch, match="append new fields at the end"):
        log.ensure(nested.write(Topic("analytics.totals")).topic)
    log.close()


def test_a_dataclass_of_the_name_and_fields_pins_the_type() -> None:
    @dataclass
    class Counts:
        shop: str | None
        count: int | None

    inferred = mr.read(SALES).window(windows.fixed("1s")).group_by("shop").count().write("counts").topic
    pinned = Topic("counts", Counts)
    assert (pinned.type_name, pinned.schema) == (inferred.type_name, inferred.schema)
    assert event_types.signature(pinned.type) == event_types.signature(inferred.type)


def test_an_inferred_type_can_be_sent_to_workers() -> None:
    topic = totals().write("analytics.totals").topic
    copy = pickle.loads(pickle.dumps(topic))
    assert copy == topic
    assert copy.type is topic.type


def test_an_inferred_type_can_be_sent_to_workers_of_spark() -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    topic = totals().write("analytics.totals").topic
    program = (
        "import pickle, sys; topic = pickle.load(sys.stdin.buffer); "
        "from millrace.values import event_types; print(topic.type_name, event_types.signature(topic.type))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], input=cloudpickle.dumps(topic), capture_output=True, check=True
    )
    assert run.stdout.decode().strip() == f"{topic.type_name} {event_types.signature(topic.type)}"


def test_floats_are_not_rounded_to_decimals() -> None:
    @dataclass
    class Price:
        price: Annotated[Decimal, pl.Decimal(10, 2)]

    with pytest.raises(DefinitionError, match=r"round it: pl.col\('price'\).cast\(pl.Decimal"):
        mr.read(SALES).select(price=pl.col("price").cast(pl.Float64)).write(Topic("prices", Price))


def test_an_output_is_shown_by_its_topic_and_columns() -> None:
    output: Output = totals().write("analytics.totals")
    assert repr(output) == "Output('analytics.totals': shop, total, best)"
