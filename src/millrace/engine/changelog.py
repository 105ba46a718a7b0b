"""Changelogs as bags of rows: what operators that take corrections do alike.

A row has a weight: how often it was added less how often it was taken back. Rows of weight 0 are gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from millrace import panes
from millrace.engine.exchange import Body
from millrace.engine.plan import Operator
from millrace.values.columns import WEIGHT


def weight_of_change() -> pl.Expr:
    """The weight that a record of a changelog brings, by its `op`."""
    return pl.when(pl.col("op") == panes.ADD).then(1).otherwise(-1).cast(pl.Int64).alias(WEIGHT)


def add_up(rows: pl.DataFrame, identity: Sequence[str]) -> pl.DataFrame:
    """Each row once, with its weight. Rows that agree in the columns of `identity` are the same."""
    return rows.group_by(identity).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0)


def repeat_by_weight(rows: pl.DataFrame) -> pl.DataFrame:
    """Each row as often as it weighs, added or taken back."""
    weights = rows[WEIGHT].abs().to_numpy()
    return rows if (weights == 1).all() else rows[np.repeat(np.arange(rows.height), weights)]


def upstream_watermark(operator: Operator, body: Body, old: int | None) -> int | None:
    """The least watermark of the operators whose changes come in; it never goes back."""
    upstream = [body.low_watermarks.get(id) for id in operator.upstream if id is not None]
    known = [watermark for watermark in upstream if watermark is not None]
    if len(known) < len(upstream):
        return old
    return min(known) if old is None else max(old, min(known))
