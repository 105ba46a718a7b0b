"""Text with units outside, whole milliseconds inside."""

import re
from datetime import timedelta
from typing import Any, TypeAlias

from millrace.errors import DefinitionError
from millrace.values.calls import shown

Duration: TypeAlias = str | int | timedelta
"""`"30s"`, `"1m30s"`, whole milliseconds, or a `timedelta`."""

FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999
"""The times that events can have: the years 1 to 9999. An event outside of them is a dead letter."""
LONGEST = LAST - FIRST
"""No duration is longer, so that times and durations can be added without leaving 64 bits."""

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[dhms])")


def millis(duration: Duration, *, name: str = "duration") -> int:
    """Whole milliseconds of a duration; `name` is what an error calls it."""
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    if isinstance(duration, int) and not isinstance(duration, bool):
        return duration
    if not isinstance(duration, str):
        raise DefinitionError(f"{name}={duration!r} is no duration; write text with a unit such as '30s'")
    text = duration.strip()
    if text.startswith("-") and not text.startswith("--"):
        return -millis(text[1:], name=name)
    parts = list(_PART.finditer(text))
    if not parts or _PART.sub("", text).strip():
        raise DefinitionError(
            f"{name}={duration!r} is no duration; write it like '500ms', '30s', '5m', '1h30m' or '1d'"
        )
    total = sum(float(part[1]) * _UNITS[part[2]] for part in parts)
    if total > LONGEST:
        raise _too_long(duration, name)
    return round(total)


def within(duration: Duration, *, name: str) -> int:
    """Like `millis`, and not longer than from the year 1 to the year 9999."""
    value = millis(duration, name=name)
    if abs(value) > LONGEST:
        raise _too_long(duration, name)
    return value


def _too_long(duration: Duration, name: str) -> DefinitionError:
    return DefinitionError(
        f"{name}={duration!r} is longer than all times that events can have (the years 1 to 9999); use a shorter one"
    )


def positive(duration: Duration, *, name: str) -> int:
    """Like `within`, and more than nothing."""
    value = within(duration, name=name)
    if value <= 0:
        raise DefinitionError(f"{name}={duration!r} must be longer than zero")
    return value


def not_negative(duration: Duration, *, name: str) -> int:
    """Like `within`, and not below zero."""
    value = within(duration, name=name)
    if value < 0:
        raise DefinitionError(f"{name}={duration!r} must not be negative")
    return value


def whole(value: Any, *, name: str, least: int) -> int:
    """A whole number that is not less than `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DefinitionError(f"{name}={shown(value)} must be a whole number from {least} on")
    return value


def text(value: int) -> str:
    """The shortest text that `millis` reads back: 90000 → `"1m30s"`."""
    if value == 0:
        return "0s"
    sign, rest, parts = ("-" if value < 0 else ""), abs(value), []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts)
