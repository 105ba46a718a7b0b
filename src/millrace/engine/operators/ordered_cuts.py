"""Where the rows of one key cut its windows: a walk over plain values, in the order of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millrace.windows import Counted, Delta, WindowFn


@dataclass
class KeyWindow:
    """How far a key has come: which rows a window may still show, how many came since the last one, and what
    differences are measured from.
    """

    rows: list[int]
    rows_since: int
    reference: Any


def cut_windows(
    window: WindowFn, key_window: KeyWindow, values: Sequence[Any], new: range
) -> list[list[int]]:
    """The windows that are full once the rows numbered `new` have come, each as the numbers of its rows;
    `values` is what they say of windows.
    """
    match window:
        case Counted(size=size, every=every):
            return _cut_by_count(size, every, key_window, new)
        case Delta(threshold=threshold, every=None):
            return _cut_by_delta(threshold, key_window, values, new)
        case Delta(threshold=threshold, every=every) if every is not None:
            return _cut_sliding_delta(threshold, every, key_window, values, new)
        case _:
            return _cut_by_mark(key_window, values, new)


def _cut_by_count(size: int, every: int, key_window: KeyWindow, new: range) -> list[list[int]]:
    windows = []
    for row in new:
        key_window.rows.append(row)
        key_window.rows_since += 1
        if key_window.rows_since == every:
            windows.append(key_window.rows[-size:])
            key_window.rows = [] if every == size else key_window.rows[-size:]
            key_window.rows_since = 0
    key_window.rows = key_window.rows[-size:]
    return windows


def _cut_by_delta(
    threshold: float, key_window: KeyWindow, values: Sequence[Any], new: range
) -> list[list[int]]:
    windows = []
    for row in new:
        value = values[row]
        if value is not None:
            if key_window.reference is not None and abs(value - key_window.reference) > threshold:
                windows.append(key_window.rows)
                key_window.rows, key_window.rows_since, key_window.reference = [], 0, value
            elif key_window.reference is None:
                key_window.reference = value
        key_window.rows.append(row)
        key_window.rows_since += 1
    return windows


def _cut_sliding_delta(
    threshold: float, every: float, key_window: KeyWindow, values: Sequence[Any], new: range
) -> list[list[int]]:
    windows = []
    for row in new:
        value = values[row]
        key_window.rows.append(row)
        key_window.rows_since += 1
        if value is None:
            continue
        key_window.reference = value if key_window.reference is None else key_window.reference
        key_window.rows = [
            other
            for other in key_window.rows
            if values[other] is None or abs(values[other] - value) <= threshold
        ]
        if abs(value - key_window.reference) > every:
            windows.append(list(key_window.rows))
            key_window.rows_since, key_window.reference = 0, value
    return windows


def _cut_by_mark(key_window: KeyWindow, values: Sequence[Any], new: range) -> list[list[int]]:
    windows = []
    for row in new:
        key_window.rows.append(row)
        key_window.rows_since += 1
        if values[row]:
            windows.append(key_window.rows)
            key_window.rows, key_window.rows_since = [], 0
    return windows
