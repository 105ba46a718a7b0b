"""Where the rows of one key cut its windows: a walk over plain values, in the order of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millrace.windows import Counted, Delta, WindowFn


@dataclass
class Course:
    """How far a key has come: which rows a window may still show, how many came since the last one, and what differences are measured from."""

    rows: list[int]
    since: int
    mark: Any


def cut(window: WindowFn, course: Course, values: Sequence[Any], new: range) -> list[list[int]]:
    """The windows that are full once the rows numbered `new` have come, each as the numbers of its rows; `values` is what they say of windows."""
    match window:
        case Counted(size=size, every=every):
            return _counted(size, every, course, new)
        case Delta(threshold=threshold, every=None):
            return _stretches(threshold, course, values, new)
        case Delta(threshold=threshold, every=every) if every is not None:
            return _sliding_stretches(threshold, every, course, values, new)
        case _:
            return _marked(course, values, new)


def _counted(size: int, every: int, course: Course, new: range) -> list[list[int]]:
    made = []
    for row in new:
        course.rows.append(row)
        course.since += 1
        if course.since == every:
            made.append(course.rows[-size:])
            course.rows = [] if every == size else course.rows[-size:]
            course.since = 0
    course.rows = course.rows[-size:]
    return made


def _stretches(threshold: float, course: Course, values: Sequence[Any], new: range) -> list[list[int]]:
    made = []
    for row in new:
        value = values[row]
        if value is not None:
            if course.mark is not None and abs(value - course.mark) > threshold:
                made.append(course.rows)
                course.rows, course.since, course.mark = [], 0, value
            elif course.mark is None:
                course.mark = value
        course.rows.append(row)
        course.since += 1
    return made


def _sliding_stretches(
    threshold: float, every: float, course: Course, values: Sequence[Any], new: range
) -> list[list[int]]:
    made = []
    for row in new:
        value = values[row]
        course.rows.append(row)
        course.since += 1
        if value is None:
            continue
        course.mark = value if course.mark is None else course.mark
        course.rows = [
            other for other in course.rows if values[other] is None or abs(values[other] - value) <= threshold
        ]
        if abs(value - course.mark) > every:
            made.append(list(course.rows))
            course.since, course.mark = 0, value
    return made


def _marked(course: Course, values: Sequence[Any], new: range) -> list[list[int]]:
    made = []
    for row in new:
        course.rows.append(row)
        course.since += 1
        if values[row]:
            made.append(course.rows)
            course.rows, course.since = [], 0
    return made
