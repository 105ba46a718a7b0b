"""HOW panes refine each other: the columns of every result besides its key and aggregates."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import polars as pl

Accumulation: TypeAlias = Literal["accumulating", "discarding", "retracting"]
"""The content of a pane: all rows of its window; only those since the last pane; or all,
with a retraction of the last pane.
"""

OnTime: TypeAlias = Literal["always", "if_new"]
"""Whether the pane on time is emitted even if there are no new rows since an early pane."""

Closing: TypeAlias = Literal["none", "if_new", "always"]
"""Whether a window emits a last pane when its state is dropped: never;
if there are rows in no pane yet; always.
"""

PaneTime: TypeAlias = Literal["end", "earliest", "latest"]
"""The event time of a pane: the last millisecond of its window,
or that of its earliest or latest new row that was not late.
"""

Delivery: TypeAlias = Literal["exactly_once", "at_least_once", "at_most_once"]
"""The effect of a crash on results in flight: none; they may be written again; they may be lost."""

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
"""Times are milliseconds since the epoch, `[window_start, window_end)`. `index` counts the panes of a window,
`settled_index` the on-time and late ones among them (−1 while early). `final`: no other pane of this window
and key follows. `op`: `+` a value, `-` a retraction of the value before that no value replaces.
"""


SHOWN_ONCE: Mapping[str, object] = MappingProxyType(
    {"index": 0, "settled_index": 0, "timing": "on_time", "final": True, "op": ADD}
)
"""The columns of a pane that is its window's only one, besides the window itself."""


def shown_once() -> list[pl.Expr]:
    """These columns as expressions."""
    return [pl.lit(value, COLUMNS[name]).alias(name) for name, value in SHOWN_ONCE.items()]


HISTORY_COLUMNS = ("index", "settled_index", "timing", "final", "op")
"""The columns on how a pane was emitted. Where panes are input as changes, no result may depend on these."""


def latest_panes(panes: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """The latest value of each key and window, sorted, without the history columns;
    retracted ones are left out.
    """
    values = [c for c in panes.columns if c not in COLUMNS and c not in key and c != "event_time"]
    latest = panes.sort("index", maintain_order=True).group_by(*key, "window_start", "window_end").last()
    order = ["window_end", "window_start", *key]
    return latest.filter(pl.col("op") == ADD).select(*key, "window_start", "window_end", *values).sort(order)
