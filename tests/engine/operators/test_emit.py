"""The panes that leave a job when they replace others,
and the net changes of rows that are shown one by one.
"""

from typing import Any

import polars as pl

from millrace import panes
from millrace.engine.operators.emit import drop_replaced_retractions, net_changes
from millrace.values.columns import PAIR

HISTORY: dict[str, Any] = {"index": 0, "settled_index": 0, "timing": "late", "final": False}


def rows(*changes: tuple[str, int, int]) -> pl.DataFrame:
    """Panes: `+` or `-`, a value, and the pair that they belong to."""
    made = [{"value": value, **HISTORY, "op": op, PAIR: pair} for op, value, pair in changes]
    return pl.DataFrame(made, schema_overrides={PAIR: pl.Int64})


def test_accumulating_panes_are_withdrawn_only_where_no_new_value_takes_their_place() -> None:
    changes = rows(("-", 3, 0), ("+", 5, 0), ("-", 7, 1))
    left = drop_replaced_retractions(changes, "accumulating")
    assert left.select("op", "value").rows() == [(panes.RETRACT, 7), (panes.ADD, 5)]


def test_retracting_panes_leave_with_the_value_before() -> None:
    changes = rows(("-", 3, 0), ("+", 5, 0))
    assert drop_replaced_retractions(changes, "retracting").select("op", "value").rows() == [
        ("-", 3),
        ("+", 5),
    ]


def test_of_rows_that_come_and_go_only_the_difference_is_shown() -> None:
    changes = rows(("-", 1, 0), ("-", 2, 0), ("+", 2, 0), ("+", 3, 0), ("+", 3, 0))
    assert net_changes(changes).select("op", "value").rows() == [("-", 1), ("+", 3), ("+", 3)]
