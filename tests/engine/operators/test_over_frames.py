"""Rows that are kept and rows that are new as one frame of neighbours."""

import polars as pl

from meter_readings import read
from millrace import aggregates
from millrace.engine.operators.over_frames import add_frames, join_rows
from millrace.graph.build.over import Over
from millrace.values.columns import GROUP, OFFSET, ROW_TIME, SOURCE


def rows(*given: tuple[str, int, float]) -> pl.DataFrame:
    frame = pl.DataFrame(given, schema=["meter", ROW_TIME, "value"], orient="row")
    order = [pl.lit(0, pl.Int64).alias(SOURCE), pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET)]
    return frame.with_columns(order)


def node(ttl: int | None = None) -> Over:
    made = read().over(n=aggregates.count(), rows=2, ttl=ttl).node
    assert isinstance(made, Over)
    return made


def test_a_group_is_the_rows_of_a_key_up_to_where_it_begins_anew() -> None:
    stored, new = rows(("a", 1, 1.0), ("b", 2, 2.0)), rows(("a", 4, 3.0), ("b", 9, 4.0), ("a", 9, 5.0))
    assert join_rows(node(), stored, new)[GROUP].to_list() == [0, 1, 0, 1, 0]
    assert join_rows(node(ttl=5), stored, new)[GROUP].to_list() == [0, 1, 0, 3, 4]


def test_only_new_rows_come_out_in_the_order_in_which_they_came() -> None:
    stored, new = rows(("a", 1, 1.0)), rows(("b", 2, 2.0), ("a", 3, 3.0), ("b", 4, 4.0))
    framed = add_frames(node(), join_rows(node(), stored, new), node().framed)
    assert framed.select("meter", "n").rows() == [("b", 1), ("a", 2), ("b", 2)]


def test_nothing_comes_of_nothing() -> None:
    nothing = rows(("a", 1, 1.0)).clear()
    assert add_frames(node(), join_rows(node(), nothing, nothing), node().framed).is_empty()
