"""Text with units outside, whole milliseconds inside."""

import re
from datetime import timedelta
from typing import Any, TypeAlias

from millrace.errors import DefinitionError
from millrace.values.calls import short_repr

Duration: TypeAlias = str | int | timedelta
"""`"30s"`, `"1m30s"`, whole milliseconds, or a `timedelta`."""

MIN_TIME, MAX_TIME = -62_135_596_800_000, 253_402_300_799_999
"""The times that events can have: the years 1 to 9999. An event outside of them is a dead letter."""
BEFORE_ALL, END_OF_STREAM = -(2**62), 2**62
"""Times before and after all events: the watermark before the first row,
and the one after the last row of a bounded stream.
"""
MAX_DURATION = MAX_TIME - MIN_TIME
"""No duration is longer, so that times and durations can be added without leaving 64 bits."""

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[dhms])")


def parse_millis(duration: Duration, *, name: str = "duration") -> int:
    """Whole milliseconds of a duration; `name` is what an error calls it."""
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    if isinstance(duration, int) and not isinstance(duration, bool):
        return duration
    if not isinstance(duration, str):
        raise DefinitionError(f"{name}={duration!r} is not a duration; write text with a unit such as '30s'")
    text = duration.strip()
    if text.startswith("-") and not text.startswith("--"):
        return -parse_millis(text[1:], name=name)
    parts = list(_PART.finditer(text))
    if not parts or _PART.sub("", text).strip():
        raise DefinitionError(
            f"{name}={duration!r} is not a duration; write it like '500ms', '30s', '5m', '1h30m' or '1d'"
        )
    total = sum(float(part[1]) * _UNITS[part[2]] for part in parts)
    if total > MAX_DURATION:
        raise _too_long_error(duration, name)
    return round(total)


def parse_bounded(duration: Duration, *, name: str) -> int:
    """Like `millis`, and not longer than from the year 1 to the year 9999."""
    value = parse_millis(duration, name=name)
    if abs(value) > MAX_DURATION:
        raise _too_long_error(duration, name)
    return value


def _too_long_error(duration: Duration, name: str) -> DefinitionError:
    return DefinitionError(
        f"{name}={duration!r} is longer than all times that events can have (the years 1 to "
        "9999); use a shorter one"
    )


def parse_positive(duration: Duration, *, name: str) -> int:
    """Like `within`, and more than nothing."""
    value = parse_bounded(duration, name=name)
    if value <= 0:
        raise DefinitionError(f"{name}={duration!r} must be longer than zero")
    return value


def parse_non_negative(duration: Duration, *, name: str) -> int:
    """Like `within`, and not below zero."""
    value = parse_bounded(duration, name=name)
    if value < 0:
        raise DefinitionError(f"{name}={duration!r} must not be negative")
    return value


def check_whole(value: Any, *, name: str, minimum: int) -> int:
    """A whole number that is not less than `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise DefinitionError(f"{name}={short_repr(value)} must be a whole number from {minimum} on")
    return value


def format_millis(value: int) -> str:
    """The shortest text that `millis` reads back: 90000 → `"1m30s"`."""
    if value == 0:
        return "0s"
    sign, rest, parts = ("-" if value < 0 else ""), abs(value), []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts)
