"""Rows in order, key by key, without moving them: their numbers are sorted, and the rows stay where they are.

Keys are numbered first, whatever their types, and a key and a time become one whole number: the number of the
key in its upper part, the time in its lower. Sorting those is several times as quick as sorting rows by
columns. Rows of one key and time are told apart by further columns, and by their place in the frame; that
costs a second sort, of all rows, where there are such.

    row   key   time   number of the key   sorted by key and time
    0     b     10 s   1                   row 1 (a, 11 s)
    1     a     11 s   0                   row 3 (a, 12 s)
    2     b     12 s   1                   row 0 (b, 10 s)
    3     a     12 s   0                   row 2 (b, 12 s)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from millrace.values.columns import KEY_NUMBER

Numbers = npt.NDArray[np.int64]

_LIMIT = 1 << 62


@dataclass(frozen=True)
class NumberedKeys:
    """The keys of rows as whole numbers from 0 on."""

    keys: pl.DataFrame
    """Each key once, at the place that is its number."""
    numbers: Numbers
    """The number of each row's key."""

    @classmethod
    def of(cls, rows: pl.DataFrame, keys: Sequence[str]) -> NumberedKeys:
        """The keys of rows; without key columns all rows have one key."""
        if not keys:
            return cls(rows.select(()), np.zeros(len(rows), np.int64))
        own = rows.select(keys)
        distinct = own.unique()
        return cls(distinct, _look_up(own, distinct).to_numpy())

    def number_others(self, rows: pl.DataFrame) -> Numbers:
        """The numbers of the keys of other rows. Keys that are not among these get numbers behind them."""
        names = self.keys.columns
        if not names or rows.is_empty():
            return np.zeros(len(rows), np.int64)
        found = _look_up(rows.select(names), self.keys)
        if not found.null_count():
            return found.to_numpy()
        others = NumberedKeys.of(rows.filter(found.is_null()), names)
        numbers: Numbers = found.fill_null(0).to_numpy(writable=True)
        numbers[found.is_null().to_numpy()] = others.numbers + len(self.keys)
        return numbers


def sort_by_key_and_time(numbers: Numbers, times: Numbers, ties: Sequence[Numbers] = ()) -> Numbers:
    """The places of rows by the number of their key, then time, then `ties`, then place."""
    if not len(numbers):
        return np.zeros(0, np.int64)
    first, last = int(times.min()), int(times.max())
    span = last - first + 1
    if (int(numbers.max()) + 1) * span > _LIMIT:
        return np.lexsort((*reversed(ties), times, numbers))
    packed = numbers * span + (times - first)
    order: Numbers = np.argsort(packed)
    in_order = packed[order]
    return np.lexsort((*reversed(ties), packed)) if (in_order[1:] == in_order[:-1]).any() else order


def ends_of_keys(keys: Numbers) -> Numbers:
    """For each row, in order of keys, where the rows of its key end."""
    last = np.append(np.flatnonzero(np.diff(keys)) + 1, len(keys))
    return np.repeat(last, np.diff(last, prepend=0))


def join_ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """The row numbers of several ranges in turn: starts 3 and 7 with lengths 2 and 3 give 3 4 7 8 9."""
    joined: Numbers = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths - starts, lengths)
    return joined


def _look_up(rows: pl.DataFrame, keys: pl.DataFrame) -> pl.Series:
    """The place in `keys` of the key of each row; null where it is not there."""
    numbered = keys.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(KEY_NUMBER))
    return rows.join(numbered, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")[
        KEY_NUMBER
    ]
