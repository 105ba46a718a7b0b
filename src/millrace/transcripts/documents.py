"""From a YAML document to a transcript: every key is known, or refused by its name."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace import triggers, windows
from millrace.errors import MillraceError
from millrace.panes import Output
from millrace.plain_values import Row
from millrace.triggers import Trigger
from millrace.windows import Sliding

KEYS = ("name", "window", "trigger", "output", "lateness", "output_time", "on_time", "closing", "value", "must_fail", "tags", "steps")
STEPS = ("events", "watermark", "clock", "restart", "expect", "expect_dropped")
PANE = ("key", "window", "values", "value", "retracts", "timing", "index", "settled_index", "final", "at")
TIMINGS = ("early", "on_time", "late")

_PATTERN_KEYS = ("pattern", "table", "query", "match_recognize")
_LATER_TRIGGERS = ("count", "clock_delay", "every", "repeat", "any", "all", "each", "or_finally", "end_of_stream", "clock", "watermark")
_CHOICES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "output": (("value", "value_and_retract"), ("delta",)),
    "output_time": (("end",), ("earliest", "latest")),
    "on_time": (("always", "if_new"), ()),
    "closing": (("none",), ("if_new", "always")),
    "value": (("list", "sum"), ()),
}
"""For each key what may be chosen, the default first, and what the format knows but this version does not.

Without early panes an on-time pane is always new, so that the two choices of `on_time` are one."""


class Wrong(MillraceError, ValueError):
    """A transcript that says something impossible."""


class Unavailable(MillraceError):
    """A transcript that asks for what this version does not have."""


@dataclass(frozen=True)
class Transcript:
    """One document, understood."""

    window: Sliding
    trigger: Trigger
    output: Output
    lateness: int
    listed: bool
    """Whether a pane's value is the list of the events' values, and not their sum."""
    must_fail: str | None
    steps: tuple[tuple[str, Any], ...]


def understand(document: Any) -> Transcript:
    """A document as a transcript; the error names the key that is unknown, wrong or not yet available."""
    if not isinstance(document, dict):
        raise Wrong(f"a transcript is a map with `window` and `steps`, not {text(document)}")
    for key in _PATTERN_KEYS:
        if key in document:
            raise Unavailable(f"pattern transcripts (`{key}`)")
    _known(document, KEYS, "a transcript")
    for key in ("window", "steps"):
        if key not in document:
            raise Wrong(f"`{key}` is missing")
    chosen: dict[str, Any] = {key: _chosen(document, key) for key in _CHOICES}
    must_fail = document.get("must_fail")
    if must_fail not in (None, "missing", "unexpected"):
        raise Wrong(f"`must_fail: {text(must_fail)}` is unknown; use missing or unexpected")
    return Transcript(
        _window(document["window"]),
        _trigger(document.get("trigger", "default")),
        chosen["output"],
        _number(document.get("lateness", 0), "lateness", least=0),
        chosen["value"] == "list",
        must_fail,
        tuple(_steps(document["steps"])),
    )


def text(thing: Any) -> str:
    """Anything, as it would stand in a transcript on one line."""
    return thing if isinstance(thing, str) else json.dumps(thing, default=str, ensure_ascii=False)


def plain(value: Any) -> str:
    """A value as text that is equal for equal values, be a whole number written 1 or 1.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list):
        return f"[{', '.join(map(plain, value))}]"
    return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)


def _chosen(document: Mapping[str, Any], key: str) -> str:
    now, later = _CHOICES[key]
    said = document.get(key, now[0])
    if said in later:
        raise Unavailable(f"`{key}: {said}`")
    if said not in now:
        raise Wrong(f"`{key}: {text(said)}` is unknown; use {' or '.join((*now, *later))}")
    return str(said)


def _window(said: Any) -> Sliding:
    if said == "global":
        raise Unavailable("`window: global`")
    if not isinstance(said, dict):
        raise Wrong(f"`window: {text(said)}` is unknown; use {{fixed: N}} or {{sliding: {{size: N, every: N}}}}")
    _known(said, ("fixed", "sliding", "session", "time", "offset"), "window")
    if "session" in said:
        raise Unavailable("`window: {session: GAP}`")
    if "time" in said and said["time"] != "event":
        raise Unavailable("`time: clock` in `window`")
    if ("fixed" in said) == ("sliding" in said):
        raise Wrong("`window` needs one of fixed, sliding and session")
    if "fixed" in said:
        return windows.fixed(_number(said["fixed"], "fixed", least=1), offset=_number(said.get("offset", 0), "offset"))
    inner = said["sliding"]
    if not isinstance(inner, dict) or not {"size", "every"} <= inner.keys():
        raise Wrong(f"`sliding: {text(inner)}` needs size and every, such as {{size: 10, every: 5}}")
    _known(inner, ("size", "every", "offset"), "sliding")
    size, every = _number(inner["size"], "size", least=1), _number(inner["every"], "every", least=1)
    return windows.sliding(size, every=every, offset=_number(inner.get("offset", said.get("offset", 0)), "offset"))


def _trigger(said: Any) -> Trigger:
    if said == "default":
        return triggers.at_watermark()
    if said == "watermark":
        return triggers.at_watermark(late=triggers.never())
    name = next(iter(said), None) if isinstance(said, dict) else said
    if name in _LATER_TRIGGERS:
        raise Unavailable(f"`trigger: {text(said)}`")
    raise Wrong(f"`trigger: {text(said)}` is unknown; use default or watermark")


def _steps(said: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(said, list):
        raise Wrong("`steps` is a list of steps")
    for number, step in enumerate(said, start=1):
        where = f"step {number}"
        if not isinstance(step, dict) or not step:
            raise Wrong(f"{where}: {text(step)} is no step; a step is one of {', '.join(STEPS)}")
        _known(step, STEPS, where)
        for kind, what in step.items():
            yield kind, _checked(kind, what, where)


def _checked(kind: str, what: Any, where: str) -> Any:
    if kind in ("events", "expect", "expect_dropped"):
        if not isinstance(what, list):
            raise Wrong(f"{where}: `{kind}` is a list, not {text(what)}")
        return [_pane(one, where) if kind == "expect" else _event(one, where) for one in what]
    if kind == "restart":
        if what is not True:
            raise Wrong(f"{where}: `restart: {text(what)}` is unknown; use restart: true")
        return what
    return what if kind == "watermark" and what == "end" else _number(what, kind)


def _event(said: Any, where: str) -> Row:
    """`t`, `key` and `value` of an event; a bare number is both its time and its value."""
    if isinstance(said, int) and not isinstance(said, bool):
        return {"t": said, "key": None, "value": said}
    if not isinstance(said, dict) or "t" not in said:
        raise Wrong(f"{where}: {text(said)} is no event; write a time, or {{t: TIME, key: KEY, value: VALUE}}")
    _known(said, ("t", "key", "value"), f"{where}, an event")
    at = _number(said["t"], "t")
    return {"t": at, "key": said.get("key"), "value": said.get("value", at)}


def _pane(said: Any, where: str) -> Row:
    if not isinstance(said, dict):
        raise Wrong(f"{where}: {text(said)} is no pane; write a map of {', '.join(PANE)}")
    _known(said, PANE, f"{where}, a pane")
    timings = said.get("timing", [])
    for timing in timings if isinstance(timings, list) else [timings]:
        if timing not in TIMINGS:
            raise Wrong(f"{where}: `timing: {text(timing)}` is unknown; use {', '.join(TIMINGS)}")
    if "values" in said and not isinstance(said["values"], list):
        raise Wrong(f"{where}: `values: {text(said['values'])}` is no list; write the values in brackets, or `value` for a sum")
    return said


def _number(said: Any, key: str, *, least: int | None = None) -> int:
    if isinstance(said, bool) or not isinstance(said, int):
        raise Wrong(f"`{key}: {text(said)}` is no whole number")
    if least is not None and said < least:
        raise Wrong(f"`{key}: {said}` is less than {least}")
    return said


def _known(said: Mapping[Any, Any], keys: tuple[str, ...], where: str) -> None:
    for key in said:
        if key not in keys:
            raise Wrong(f"unknown key `{key}` in {where}; there are {', '.join(keys)}")
