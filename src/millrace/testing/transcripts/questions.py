"""Parses the windows and triggers of transcripts."""

from collections.abc import Callable
from typing import Any

import polars as pl

from millrace import evictors, triggers, watermarks, windows
from millrace.evictors import Evictor
from millrace.testing.transcripts.own_triggers import parse_own_trigger
from millrace.testing.transcripts.words import (
    TranscriptError,
    check_keys,
    parse_integer,
    to_canonical_text,
    to_text,
)
from millrace.triggers import Trigger
from millrace.watermarks import Watermark
from millrace.windows import WindowFn

_WINDOWS = ("fixed", "sliding", "session", "global", "counted", "delta", "punctuated")


def parse_window(value: Any) -> WindowFn:
    """`global`, or a map with one kind of window."""
    if value == "global":
        return windows.global_window()
    if not isinstance(value, dict):
        raise TranscriptError(
            f"`window: {to_text(value)}` is unknown; use global or a map such as {{fixed: N}}"
        )
    check_keys(value, (*_WINDOWS, "time", "offset"), "window")
    kinds = [kind for kind in _WINDOWS if kind in value]
    if len(kinds) != 1:
        raise TranscriptError(f"`window` needs one of {', '.join(_WINDOWS)}")
    time = value.get("time", "event")
    if time not in ("event", "clock"):
        raise TranscriptError(f"`time: {to_text(time)}` is unknown; use event or clock")
    window = _parse_window_kind(kinds[0], value[kinds[0]], value.get("offset", 0))
    return windows.processing_time(window) if time == "clock" else window


def _parse_window_kind(kind: str, value: Any, offset: Any) -> WindowFn:
    match kind:
        case "fixed":
            return windows.fixed(parse_integer(value, "fixed", least=1), offset=_parse_offset(offset))
        case "sliding":
            spec = _require_map(value, "sliding", ("size", "every"), ("offset",))
            window_offset = _parse_offset(spec.get("offset", offset))
            return windows.sliding(
                parse_integer(spec["size"], "size", least=1),
                every=parse_integer(spec["every"], "every", least=1),
                offset=window_offset,
            )
        case "session":
            return windows.sessions(parse_integer(value, "session", least=1))
        case "global":
            return windows.global_window()
        case "counted":
            if not isinstance(value, dict):
                return windows.counted(parse_integer(value, "counted", least=1))
            spec = _require_map(value, "counted", ("size", "every"), ())
            return windows.counted(
                parse_integer(spec["size"], "size", least=1),
                every=parse_integer(spec["every"], "every", least=1),
            )
        case "delta":
            if not isinstance(value, dict):
                return windows.delta("value", value)
            spec = _require_map(value, "delta", ("threshold",), ("every",))
            return windows.delta("value", spec["threshold"], every=spec.get("every"))
        case _:
            return windows.punctuated(pl.col("value") == parse_integer(value, "punctuated"))


def _parse_offset(spec: Any) -> int | pl.Expr:
    """A number for all keys, or a map of some keys to numbers."""
    if not isinstance(spec, dict):
        return parse_integer(spec, "offset")
    offsets = {
        to_canonical_text(key): parse_integer(value, f"offset of {to_text(key)}")
        for key, value in spec.items()
    }
    return pl.col("key").replace_strict(offsets, default=0, return_dtype=pl.Int64)


def _require_map(
    value: Any, name: str, required: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, Any]:
    if not isinstance(value, dict) or not {*required} <= value.keys():
        raise TranscriptError(
            f"`{name}: {to_text(value)}` needs {' and '.join(required)}, such as "
            f"{{{', '.join(f'{key}: 10' for key in required)}}}"
        )
    check_keys(value, (*required, *optional), name)
    return value


_SIMPLE_TRIGGERS: dict[str, Callable[[], Trigger]] = {
    "default": triggers.at_watermark,
    "watermark": lambda: triggers.at_watermark(late=triggers.never()),
    "end_of_stream": triggers.at_end,
    "clock": triggers.at_window_end,
    "never": triggers.never,
}
_NUMERIC_TRIGGERS: dict[str, Callable[[int], Trigger]] = {
    "count": triggers.after_count,
    "clock_delay": triggers.after_delay,
    "every": lambda period: triggers.every(period, time="event"),
    "clock_every": triggers.every,
}
_COMPOSITE_TRIGGERS: dict[str, Callable[..., Trigger]] = {
    "any": triggers.any_of,
    "all": triggers.all_of,
    "each": triggers.in_order,
    "or_finally": lambda trigger, last: trigger.until(last),
}


def parse_trigger(value: Any) -> Trigger:
    """A trigger: a word, or a map of one word to a number or to other triggers."""
    if isinstance(value, str) and value in _SIMPLE_TRIGGERS:
        return _SIMPLE_TRIGGERS[value]()
    if not isinstance(value, dict) or len(value) != 1:
        raise TranscriptError(
            f"`trigger: {to_text(value)}` is unknown; use "
            f"{', '.join((*_SIMPLE_TRIGGERS, *_NUMERIC_TRIGGERS, 'repeat', 'own', *_COMPOSITE_TRIGGERS))}"
        )
    [(kind, inner)] = value.items()
    if kind == "watermark":
        return _parse_at_watermark(inner)
    if kind == "own":
        return parse_own_trigger(inner)
    if kind == "repeat":
        return triggers.repeatedly(parse_trigger(inner))
    if kind in _NUMERIC_TRIGGERS:
        return _NUMERIC_TRIGGERS[kind](parse_integer(inner, kind, least=0 if kind == "clock_delay" else 1))
    if kind not in _COMPOSITE_TRIGGERS:
        raise TranscriptError(
            f"`trigger: {to_text(value)}` is unknown; use "
            f"{', '.join((*_SIMPLE_TRIGGERS, *_NUMERIC_TRIGGERS, 'repeat', 'own', *_COMPOSITE_TRIGGERS))}"
        )
    if not isinstance(inner, list) or not inner or (kind == "or_finally" and len(inner) != 2):
        raise TranscriptError(
            f"`{kind}: {to_text(inner)}` needs a list of {'two' if kind == 'or_finally' else 'some'} triggers"
        )
    return _COMPOSITE_TRIGGERS[kind](*map(parse_trigger, inner))


def _parse_at_watermark(value: Any) -> Trigger:
    """The trigger `watermark`, which fires once on time, with `early` and `late` as given."""
    if not isinstance(value, dict):
        raise TranscriptError(f"`watermark: {to_text(value)}` needs a map with early or late")
    check_keys(value, ("early", "late"), "watermark")
    early, late = (parse_trigger(value[key]) if key in value else None for key in ("early", "late"))
    return triggers.at_watermark(early=early, late=late or triggers.never())


def parse_evictor(value: Any) -> Evictor:
    """A map of one kind of evictor to its number."""
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= {"last", "within", "delta"}:
        raise TranscriptError(
            f"`evict: {to_text(value)}` is unknown; use {{last: N}}, {{within: N}} or {{delta: D}}"
        )
    [(kind, number)] = value.items()
    if kind == "delta":
        return evictors.delta("value", number)
    return evictors.last(number) if kind == "last" else evictors.within(parse_integer(number, kind, least=1))


def parse_watermark(value: Any, idle: int | None) -> Watermark:
    """How events move the watermark."""
    name, inner = next(iter(value.items())) if isinstance(value, dict) and value else (value, None)
    match name:
        case "bounded":
            return watermarks.bounded(parse_integer(inner, "bounded", least=0), idle=idle)
        case "ascending":
            return watermarks.ascending(idle=idle)
        case "ingestion_time":
            return watermarks.ingestion_time(idle=idle)
        case "punctuation":
            return watermarks.punctuation(pl.col("says"), idle=idle)
        case "percentile":
            learned = _require_map(inner, "percentile", ("share", "start"), ())
            return watermarks.percentile(
                learned["share"], start=parse_integer(learned["start"], "start", least=0), idle=idle
            )
        case _:
            raise TranscriptError(
                f"`watermarks: {to_text(value)}` is unknown; use {{bounded: N}}, ascending, ingestion_time, "
                "punctuation or {percentile: {share: P, start: N}}"
            )
