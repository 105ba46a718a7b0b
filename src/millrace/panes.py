"""HOW panes refine each other: the columns every result carries besides its key and aggregates."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import polars as pl

Accumulation: TypeAlias = Literal["accumulating", "discarding", "retracting"]
"""What a pane holds: all rows of its window; only those since the last pane; or all, with the value shown before taken back."""

OnTime: TypeAlias = Literal["always", "if_new"]
"""Whether the pane on time comes even when nothing is new since an early one."""

Closing: TypeAlias = Literal["none", "if_new", "always"]
"""Whether a last pane comes when a window is dropped: never; when something was not shown yet; always."""

PaneTime: TypeAlias = Literal["end", "earliest", "latest"]
"""The event time of a pane: its window's last millisecond, or that of its earliest or latest new row that was not late."""

Delivery: TypeAlias = Literal["exactly_once", "at_least_once", "at_most_once"]
"""What a crash may do to results that were on their way: nothing; write them again; lose them."""

ADD, RETRACT = "+", "-"

COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "window_start": pl.Int64,
    "window_end": pl.Int64,
    "index": pl.Int64,
    "settled_index": pl.Int64,
    "timing": pl.String,
    "final": pl.Boolean,
    "op": pl.String,
}
"""Times are milliseconds since the epoch, `[window_start, window_end)`. `index` counts a window's panes, `settled_index` the
on-time and late ones among them (−1 while early). `final`: no other pane of this window and key will come. `op`: `+` a value,
`-` the withdrawal of the value shown before, where no value takes its place."""


SHOWN_ONCE: Mapping[str, object] = MappingProxyType(
    {"index": 0, "settled_index": 0, "timing": "on_time", "final": True, "op": ADD}
)
"""The columns of a pane that is its window's only one, besides the window itself."""


def shown_once() -> list[pl.Expr]:
    """The same as expressions."""
    return [pl.lit(value, COLUMNS[name]).alias(name) for name, value in SHOWN_ONCE.items()]


HISTORY_COLUMNS = ("index", "settled_index", "timing", "final", "op")
"""The columns that say how a pane came about, and not what holds: where panes travel on as changes, nothing may depend on them."""


def latest_panes(panes: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """The last word on each key and window: withdrawn ones left out, sorted, without the history columns."""
    values = [c for c in panes.columns if c not in COLUMNS and c not in key and c != "event_time"]
    latest = panes.sort("index", maintain_order=True).group_by(*key, "window_start", "window_end").last()
    order = ["window_end", "window_start", *key]
    return latest.filter(pl.col("op") == ADD).select(*key, "window_start", "window_end", *values).sort(order)
