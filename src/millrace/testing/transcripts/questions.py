"""Where and when, as transcripts say it: windows and triggers."""

from collections.abc import Callable
from typing import Any

import polars as pl

from millrace import triggers, watermarks, windows
from millrace.testing.transcripts.words import Wrong, known, number, plain, text
from millrace.triggers import Trigger
from millrace.watermarks import Watermark
from millrace.windows import WindowFn

_WINDOWS = ("fixed", "sliding", "session", "global", "counted", "delta", "punctuated")


def window_of(said: Any) -> WindowFn:
    """`global`, or a map with one kind of window."""
    if said == "global":
        return windows.everything()
    if not isinstance(said, dict):
        raise Wrong(f"`window: {text(said)}` is unknown; use global or a map such as {{fixed: N}}")
    known(said, (*_WINDOWS, "time", "offset"), "window")
    kinds = [kind for kind in _WINDOWS if kind in said]
    if len(kinds) != 1:
        raise Wrong(f"`window` needs one of {', '.join(_WINDOWS)}")
    time = said.get("time", "event")
    if time not in ("event", "clock"):
        raise Wrong(f"`time: {text(time)}` is unknown; use event or clock")
    window = _kind(kinds[0], said[kinds[0]], said.get("offset", 0))
    return windows.by_clock(window) if time == "clock" else window


def _kind(kind: str, said: Any, offset: Any) -> WindowFn:
    match kind:
        case "fixed":
            return windows.fixed(number(said, "fixed", least=1), offset=_offset(offset))
        case "sliding":
            inner = _map(said, "sliding", ("size", "every"), ("offset",))
            place = _offset(inner.get("offset", offset))
            return windows.sliding(
                number(inner["size"], "size", least=1),
                every=number(inner["every"], "every", least=1),
                offset=place,
            )
        case "session":
            return windows.sessions(number(said, "session", least=1))
        case "global":
            return windows.everything()
        case "counted":
            if not isinstance(said, dict):
                return windows.counted(number(said, "counted", least=1))
            inner = _map(said, "counted", ("size", "every"), ())
            return windows.counted(
                number(inner["size"], "size", least=1), every=number(inner["every"], "every", least=1)
            )
        case "delta":
            if not isinstance(said, dict):
                return windows.delta("value", said)
            inner = _map(said, "delta", ("threshold",), ("every",))
            return windows.delta("value", inner["threshold"], every=inner.get("every"))
        case _:
            return windows.punctuated(pl.col("value") == number(said, "punctuated"))


def _offset(said: Any) -> int | pl.Expr:
    """A number for all keys, or a map of some keys to numbers."""
    if not isinstance(said, dict):
        return number(said, "offset")
    places = {plain(key): number(value, f"offset of {text(key)}") for key, value in said.items()}
    return pl.col("key").replace_strict(places, default=0, return_dtype=pl.Int64)


def _map(said: Any, name: str, needed: tuple[str, ...], more: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(said, dict) or not {*needed} <= said.keys():
        raise Wrong(
            f"`{name}: {text(said)}` needs {' and '.join(needed)}, such as {{{', '.join(f'{key}: 10' for key in needed)}}}"
        )
    known(said, (*needed, *more), name)
    return said


_PLAIN: dict[str, Callable[[], Trigger]] = {
    "default": triggers.at_watermark,
    "watermark": lambda: triggers.at_watermark(late=triggers.never()),
    "end_of_stream": triggers.at_end,
    "clock": triggers.at_clock,
    "never": triggers.never,
}
_OF_NUMBER: dict[str, Callable[[int], Trigger]] = {
    "count": triggers.after_count,
    "clock_delay": triggers.after_delay,
    "every": triggers.every_event_time,
    "clock_every": triggers.every,
}
_OF_SEVERAL: dict[str, Callable[..., Trigger]] = {
    "any": triggers.any_of,
    "all": triggers.all_of,
    "each": triggers.in_order,
    "or_finally": lambda trigger, last: trigger.until(last),
}


def trigger_of(said: Any) -> Trigger:
    """A trigger: a word, or a map of one word to a number or to other triggers."""
    if isinstance(said, str) and said in _PLAIN:
        return _PLAIN[said]()
    if not isinstance(said, dict) or len(said) != 1:
        raise Wrong(
            f"`trigger: {text(said)}` is unknown; use {', '.join((*_PLAIN, *_OF_NUMBER, 'repeat', *_OF_SEVERAL))}"
        )
    [(kind, inner)] = said.items()
    if kind == "watermark":
        return _at_watermark(inner)
    if kind == "repeat":
        return triggers.repeatedly(trigger_of(inner))
    if kind in _OF_NUMBER:
        return _OF_NUMBER[kind](number(inner, kind, least=0 if kind == "clock_delay" else 1))
    if kind not in _OF_SEVERAL:
        raise Wrong(
            f"`trigger: {text(said)}` is unknown; use {', '.join((*_PLAIN, *_OF_NUMBER, 'repeat', *_OF_SEVERAL))}"
        )
    if not isinstance(inner, list) or not inner or (kind == "or_finally" and len(inner) != 2):
        raise Wrong(
            f"`{kind}: {text(inner)}` needs a list of {'two' if kind == 'or_finally' else 'some'} triggers"
        )
    return _OF_SEVERAL[kind](*map(trigger_of, inner))


def _at_watermark(said: Any) -> Trigger:
    """As the bare word `watermark`, which fires once; what is given comes before and after."""
    if not isinstance(said, dict):
        raise Wrong(f"`watermark: {text(said)}` needs a map with early or late")
    known(said, ("early", "late"), "watermark")
    early, late = (trigger_of(said[key]) if key in said else None for key in ("early", "late"))
    return triggers.at_watermark(early=early, late=late or triggers.never())


def watermark_of(said: Any, idle: int | None) -> Watermark:
    """How the events themselves move the watermark."""
    name, inner = next(iter(said.items())) if isinstance(said, dict) and said else (said, None)
    match name:
        case "bounded":
            return watermarks.bounded(number(inner, "bounded", least=0), idle=idle)
        case "ascending":
            return watermarks.ascending(idle=idle)
        case "ingestion_time":
            return watermarks.ingestion_time(idle=idle)
        case "punctuation":
            return watermarks.punctuation(pl.col("says"), idle=idle)
        case "percentile":
            learned = _map(inner, "percentile", ("share", "start"), ())
            return watermarks.percentile(
                learned["share"], start=number(learned["start"], "start", least=0), idle=idle
            )
        case _:
            raise Wrong(
                f"`watermarks: {text(said)}` is unknown; use {{bounded: N}}, ascending, ingestion_time, punctuation or "
                "{percentile: {share: P, start: N}}"
            )
