"""From a YAML document to a transcript: every key is known, or refused by its name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from millrace.graph.build.join import How
from millrace.panes import Closing, OnTime, Output, PaneTime
from millrace.testing.model.values import Row
from millrace.testing.transcripts import processes
from millrace.testing.transcripts.processes import Processing
from millrace.testing.transcripts.questions import trigger_of, watermark_of, window_of
from millrace.testing.transcripts.words import Wrong, known, number, text
from millrace.triggers import Trigger
from millrace.watermarks import Watermark
from millrace.windows import ByClock, WindowFn

KEYS = (
    "name",
    "window",
    "trigger",
    "output",
    "lateness",
    "output_time",
    "on_time",
    "closing",
    "value",
    "then",
    "join",
    "deduplicate",
    "process",
    "partitions",
    "idle",
    "watermarks",
    "must_fail",
    "tags",
    "steps",
)
STEPS = ("events", "watermark", "clock", "restart", "expect", "expect_dropped")
PANE = (
    "key",
    "window",
    "values",
    "value",
    "pair",
    "gone",
    "emits",
    "aside",
    "retracts",
    "timing",
    "index",
    "settled_index",
    "final",
    "at",
)
TIMINGS = ("early", "on_time", "late")

_CHOICES: dict[str, tuple[str, ...]] = {
    "output": ("value", "delta", "value_and_retract"),
    "output_time": ("end", "earliest", "latest"),
    "on_time": ("always", "if_new"),
    "closing": ("none", "if_new", "always"),
    "value": ("list", "sum", "count", "latest"),
}
"""For each key what may be chosen, the default first."""


@dataclass(frozen=True)
class Joining:
    """How two sides are brought together: in windows, by the times of their events, or with the right one as a table."""

    how: How
    within: tuple[int, int] | None = None
    table: bool = False


@dataclass(frozen=True)
class Deduplicating:
    """Of events with equal key and value only the first within some time; `time`: only those of the same time are copies."""

    within: int
    time: bool


@dataclass(frozen=True)
class Transcript:
    """One document, understood."""

    window: WindowFn
    trigger: Trigger
    output: Output
    lateness: int
    time: PaneTime
    on_time: OnTime
    closing: Closing
    value: str
    """What a pane holds: the list of the events' values, their sum, their number, or the latest."""
    then: tuple[Row, ...]
    """Aggregations that follow in the same window: what they are keyed `by`, and their `value`."""
    join: Joining | None
    """How events of the side `left` and those of the side `right` are joined instead; None: there are no sides."""
    deduplicate: Deduplicating | None
    """Which copies are left out before anything else."""
    process: Processing | None
    """What a processor does with the events instead."""
    partitions: int
    idle: int | None
    watermark: Watermark | None
    """How events move the watermark; None: the steps say where it is."""
    must_fail: str | None
    steps: tuple[tuple[str, Any], ...]

    @property
    def places(self) -> WindowFn:
        """The windows, whatever time they lie in."""
        return self.window.window if isinstance(self.window, ByClock) else self.window


def understand(document: Any) -> Transcript:
    """A document as a transcript; the error names the key that is unknown, wrong or not yet available."""
    if not isinstance(document, dict):
        raise Wrong(f"a transcript is a map with `window` and `steps`, not {text(document)}")
    known(document, KEYS, "a transcript")
    join = _join(document)
    process = _process(document)
    windowless = process is not None or (join is not None and (join.within is not None or join.table))
    for key in ("steps",) if windowless else ("window", "steps"):
        if key not in document:
            raise Wrong(f"`{key}` is missing")
    chosen: dict[str, Any] = {key: _chosen(document, key) for key in _CHOICES}
    must_fail = document.get("must_fail")
    if must_fail not in (None, "missing", "unexpected"):
        raise Wrong(f"`must_fail: {text(must_fail)}` is unknown; use missing or unexpected")
    steps = tuple(_steps(document["steps"]))
    for event in (
        event for kind, what in steps if kind == "events" and process is not None for event in what
    ):
        processes.checked(event["value"], f"an event at {event['t']}", shared=event["side"] == "right")
    idle = number(document["idle"], "idle", least=1) if "idle" in document else None
    watermark = watermark_of(document["watermarks"], idle) if "watermarks" in document else None
    if watermark is not None and any(
        kind == "watermark" and what != {"at": "end", "partition": None} for kind, what in steps
    ):
        raise Wrong(
            "with `watermarks` events move the watermark, so the only step of its own is `watermark: end`"
        )
    return Transcript(
        window_of(document.get("window", "global")),
        trigger_of(document.get("trigger", "default")),
        chosen["output"],
        number(document.get("lateness", 0), "lateness", least=0),
        chosen["output_time"],
        chosen["on_time"],
        chosen["closing"],
        chosen["value"],
        tuple(_then(one) for one in document.get("then", [])),
        join,
        _deduplicate(document.get("deduplicate")),
        process,
        number(document.get("partitions", 1), "partitions", least=1),
        idle,
        watermark,
        must_fail,
        steps,
    )


def _chosen(document: Mapping[str, Any], key: str) -> str:
    choices = _CHOICES[key]
    said = document.get(key, choices[0])
    if said not in choices:
        raise Wrong(f"`{key}: {text(said)}` is unknown; use {' or '.join(choices)}")
    return str(said)


def _steps(said: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(said, list):
        raise Wrong("`steps` is a list of steps")
    for place, step in enumerate(said, start=1):
        where = f"step {place}"
        if not isinstance(step, dict) or not step:
            raise Wrong(f"{where}: {text(step)} is no step; a step is one of {', '.join(STEPS)}")
        known(step, STEPS, where)
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
    return _watermark(what, where) if kind == "watermark" else number(what, kind)


def _watermark(said: Any, where: str) -> Row:
    """A time or `end`, for all partitions or for one."""
    if not isinstance(said, dict):
        return {"at": said if said == "end" else number(said, "watermark"), "partition": None}
    known(said, ("at", "partition"), f"{where}, a watermark")
    if "at" not in said or "partition" not in said:
        raise Wrong(f"{where}: `watermark: {text(said)}` needs at and partition")
    return {
        "at": said["at"] if said["at"] == "end" else number(said["at"], "at"),
        "partition": number(said["partition"], "partition", least=0),
    }


def _then(said: Any) -> Row:
    """One more aggregation."""
    if not isinstance(said, dict):
        raise Wrong(f"`then: [{text(said)}]` needs maps such as {{by: value, value: count}}")
    known(said, ("by", "value"), "then")
    chosen = {"by": said.get("by", "key"), "value": said.get("value", "list")}
    for key, choices in (("by", ("key", "value", "all")), ("value", _CHOICES["value"])):
        if chosen[key] not in choices:
            raise Wrong(f"`{key}: {text(chosen[key])}` in `then` is unknown; use {' or '.join(choices)}")
    return chosen


def _join(document: Mapping[str, Any]) -> Joining | None:
    """How two sides are joined: a word, or a map where it is not within windows."""
    if "join" not in document:
        return None
    for key in ("value", "then"):
        if key in document:
            raise Wrong(f"`{key}` has no meaning beside `join`: what is shown are pairs of values")
    said = document["join"] if isinstance(document["join"], dict) else {"how": document["join"]}
    known(said, ("how", "within", "table"), "join")
    if said.get("how") not in get_args(How):
        raise Wrong(f"`join: {text(document['join'])}` is unknown; use {' or '.join(get_args(How))}")
    within = said.get("within")
    if within is not None and (not isinstance(within, list) or len(within) != 2):
        raise Wrong(f"`within: {text(within)}` is no interval; write [N, N]")
    bounds = None if within is None else (number(within[0], "within"), number(within[1], "within"))
    return Joining(said["how"], bounds, bool(said.get("table", False)))


def _process(document: Mapping[str, Any]) -> Processing | None:
    if "process" not in document:
        return None
    for key in (
        "window",
        "trigger",
        "output",
        "lateness",
        "output_time",
        "on_time",
        "closing",
        "value",
        "then",
        "join",
    ):
        if key in document:
            raise Wrong(
                f"`{key}` has no meaning beside `process`: rows come one by one, and what is shown is what the processor emits"
            )
    return processes.understand(document["process"])


def _deduplicate(said: Any) -> Deduplicating | None:
    if said is None:
        return None
    if not isinstance(said, dict) or "within" not in said:
        raise Wrong(
            f"`deduplicate: {text(said)}` does not say for how long copies are known; write {{within: N}}"
        )
    known(said, ("within", "time"), "deduplicate")
    return Deduplicating(number(said["within"], "within", least=1), bool(said.get("time", False)))


def _event(said: Any, where: str) -> Row:
    """`t`, `key` and `value` of an event; a bare number is both its time and its value."""
    if isinstance(said, int) and not isinstance(said, bool):
        return {"t": said, "key": None, "value": said, "side": "left", "partition": 0, "more": {}}
    if not isinstance(said, dict) or "t" not in said:
        raise Wrong(
            f"{where}: {text(said)} is no event; write a time, or {{t: TIME, key: KEY, value: VALUE}}"
        )
    known(said, ("t", "key", "value", "side", "partition", "ingested", "says"), f"{where}, an event")
    if said.get("side", "left") not in ("left", "right"):
        raise Wrong(f"{where}: `side: {text(said['side'])}` is unknown; use left or right")
    at = number(said["t"], "t")
    return {
        "t": at,
        "key": said.get("key"),
        "value": said.get("value", at),
        "side": said.get("side", "left"),
        "partition": number(said.get("partition", 0), "partition", least=0),
        "more": {name: number(said[name], name) for name in ("ingested", "says") if name in said},
    }


def _pane(said: Any, where: str) -> Row:
    if not isinstance(said, dict):
        raise Wrong(f"{where}: {text(said)} is no pane; write a map of {', '.join(PANE)}")
    known(said, PANE, f"{where}, a pane")
    timings = said.get("timing", [])
    for timing in timings if isinstance(timings, list) else [timings]:
        if timing not in TIMINGS:
            raise Wrong(f"{where}: `timing: {text(timing)}` is unknown; use {', '.join(TIMINGS)}")
    if "values" in said and not isinstance(said["values"], list):
        raise Wrong(
            f"{where}: `values: {text(said['values'])}` is no list; write the values in brackets, or `value` for a sum"
        )
    return said
