"""Parses YAML documents as transcripts, and refuses unknown keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from millrace.evictors import Evictor
from millrace.graph.build.join import JoinType
from millrace.panes import Accumulation, Closing, OnTime, PaneTime
from millrace.testing.model.values import Row
from millrace.testing.transcripts import processes, row_frames
from millrace.testing.transcripts.aggregations import ValueSpec, parse_value
from millrace.testing.transcripts.processes import ProcessSpec
from millrace.testing.transcripts.questions import parse_evictor, parse_trigger, parse_watermark, parse_window
from millrace.testing.transcripts.row_frames import OverSpec
from millrace.testing.transcripts.words import TranscriptError, check_keys, parse_integer, to_text
from millrace.triggers import Trigger
from millrace.watermarks import Watermark
from millrace.windows import ProcessingTime, WindowFn

TRANSCRIPT_KEYS = (
    "name",
    "window",
    "trigger",
    "output",
    "lateness",
    "output_time",
    "on_time",
    "closing",
    "evict",
    "value",
    "then",
    "join",
    "deduplicate",
    "process",
    "over",
    "partitions",
    "idle",
    "watermarks",
    "must_fail",
    "tags",
    "steps",
)
STEP_KEYS = ("events", "watermark", "clock", "restart", "expect", "expect_dropped")
PANE_KEYS = (
    "key",
    "window",
    "values",
    "value",
    "pair",
    "gone",
    "rank",
    "emits",
    "aside",
    "over",
    "retracts",
    "timing",
    "index",
    "settled_index",
    "final",
    "at",
)
_OF_WINDOWS = (
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
)
TIMINGS = ("early", "on_time", "late")

_CHOICES: dict[str, tuple[str, ...]] = {
    "output": ("value", "delta", "value_and_retract"),
    "output_time": ("end", "earliest", "latest"),
    "on_time": ("always", "if_new"),
    "closing": ("none", "if_new", "always"),
}
"""The choices for each key, the default first."""
_ACCUMULATIONS: dict[str, Accumulation] = {
    "value": "accumulating",
    "delta": "discarding",
    "value_and_retract": "retracting",
}
"""The choices of `output` as `window(accumulation=...)` names them."""


@dataclass(frozen=True)
class JoinSpec:
    """How two sides are joined: in windows, by event times, with the right side as a table, or by key."""

    how: JoinType
    within: tuple[int, int] | None = None
    is_table: bool = False
    is_regular: bool = False
    """By key alone; the others have no `ttl`."""
    ttl: int | None = None

    @property
    def has_window(self) -> bool:
        """Whether windows decide which rows are partners."""
        return self.within is None and not self.is_table and not self.is_regular


@dataclass(frozen=True)
class DeduplicateSpec:
    """Of events with equal key and value only the first within some time.

    `time`: only those of the same time are copies.
    """

    within: int
    same_time: bool


@dataclass(frozen=True)
class Transcript:
    """A parsed document."""

    window: WindowFn
    trigger: Trigger
    accumulation: Accumulation
    lateness: int
    time: PaneTime
    on_time: OnTime
    closing: Closing
    value: ValueSpec
    """What a pane holds: the list of the events' values, their sum, their number, or the latest."""
    then: tuple[Row, ...]
    """Aggregations that follow in the same window: what they are keyed `by`, and their `value`."""
    join: JoinSpec | None
    """How events of the side `left` and those of the side `right` are joined instead.

    None: there are no sides.
    """
    deduplicate: DeduplicateSpec | None
    """Which copies are removed first."""
    process: ProcessSpec | None
    """The calls of a processor, in place of windows."""
    over: OverSpec | None
    """The columns beside each event, in place of windows."""
    partitions: int
    idle: int | None
    watermark: Watermark | None
    """How events move the watermark; None if the steps set it."""
    must_fail: str | None
    steps: tuple[tuple[str, Any], ...]
    evict: Evictor | None = None
    """Which rows of a window panes leave out."""

    @property
    def inner_window(self) -> WindowFn:
        """The windows, whatever time they lie in."""
        return self.window.window if isinstance(self.window, ProcessingTime) else self.window


def parse_document(document: Any) -> Transcript:
    """A document as a transcript; the error names the key that is unknown, wrong or not yet available."""
    if not isinstance(document, dict):
        raise TranscriptError(f"a transcript is a map with `window` and `steps`, not {to_text(document)}")
    check_keys(document, TRANSCRIPT_KEYS, "a transcript")
    join = _parse_join(document)
    process, over = _parse_process(document), _parse_over(document)
    has_no_window = process is not None or over is not None or (join is not None and not join.has_window)
    for key in ("steps",) if has_no_window else ("window", "steps"):
        if key not in document:
            raise TranscriptError(f"`{key}` is missing")
    choices: dict[str, Any] = {key: _parse_choice(document, key) for key in _CHOICES}
    must_fail = document.get("must_fail")
    if must_fail not in (None, "missing", "unexpected"):
        raise TranscriptError(f"`must_fail: {to_text(must_fail)}` is unknown; use missing or unexpected")
    steps = tuple(_parse_steps(document["steps"]))
    if process is not None:
        _check_calls(steps)
    idle = parse_integer(document["idle"], "idle", least=1) if "idle" in document else None
    watermark = _parse_watermarks(document, idle, steps)
    return Transcript(
        parse_window(document.get("window", "global")),
        parse_trigger(document.get("trigger", "default")),
        _ACCUMULATIONS[choices["output"]],
        parse_integer(document.get("lateness", 0), "lateness", least=0),
        choices["output_time"],
        choices["on_time"],
        choices["closing"],
        parse_value(document.get("value", "list")),
        tuple(_parse_then(one) for one in document.get("then", [])),
        join,
        _parse_deduplicate(document.get("deduplicate")),
        process,
        over,
        parse_integer(document.get("partitions", 1), "partitions", least=1),
        idle,
        watermark,
        must_fail,
        steps,
        parse_evictor(document["evict"]) if "evict" in document else None,
    )


def _check_calls(steps: Sequence[tuple[str, Any]]) -> None:
    """Refuses events whose values are not calls of a processor."""
    for event in (event for kind, payload in steps if kind == "events" for event in payload):
        processes.check_calls(event["value"], f"an event at {event['t']}", is_shared=event["side"] == "right")


def _parse_watermarks(
    document: Mapping[str, Any], idle: int | None, steps: Sequence[tuple[str, Any]]
) -> Watermark | None:
    if "watermarks" not in document:
        return None
    watermark = parse_watermark(document["watermarks"], idle)
    if any(kind == "watermark" and payload != {"at": "end", "partition": None} for kind, payload in steps):
        raise TranscriptError(
            "with `watermarks` events move the watermark, so the only step of its own is `watermark: end`"
        )
    return watermark


def _parse_choice(document: Mapping[str, Any], key: str) -> str:
    choices = _CHOICES[key]
    value = document.get(key, choices[0])
    if value not in choices:
        raise TranscriptError(f"`{key}: {to_text(value)}` is unknown; use {' or '.join(choices)}")
    return str(value)


def _parse_steps(document: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(document, list):
        raise TranscriptError("`steps` is a list of steps")
    for number_of_step, step in enumerate(document, start=1):
        where = f"step {number_of_step}"
        if not isinstance(step, dict) or not step:
            raise TranscriptError(
                f"{where}: {to_text(step)} is not a step; a step is one of {', '.join(STEP_KEYS)}"
            )
        check_keys(step, STEP_KEYS, where)
        for kind, payload in step.items():
            yield kind, _parse_step(kind, payload, where)


def _parse_step(kind: str, payload: Any, where: str) -> Any:
    if kind in ("events", "expect", "expect_dropped"):
        if not isinstance(payload, list):
            raise TranscriptError(f"{where}: `{kind}` is a list, not {to_text(payload)}")
        return [
            _parse_pane(entry, where) if kind == "expect" else _parse_event(entry, where) for entry in payload
        ]
    if kind == "restart":
        if payload is not True:
            raise TranscriptError(f"{where}: `restart: {to_text(payload)}` is unknown; use restart: true")
        return payload
    return _parse_watermark_step(payload, where) if kind == "watermark" else parse_integer(payload, kind)


def _parse_watermark_step(value: Any, where: str) -> Row:
    """A time or `end`, for all partitions or for one."""
    if not isinstance(value, dict):
        return {"at": value if value == "end" else parse_integer(value, "watermark"), "partition": None}
    check_keys(value, ("at", "partition"), f"{where}, a watermark")
    if "at" not in value or "partition" not in value:
        raise TranscriptError(f"{where}: `watermark: {to_text(value)}` needs at and partition")
    return {
        "at": value["at"] if value["at"] == "end" else parse_integer(value["at"], "at"),
        "partition": parse_integer(value["partition"], "partition", least=0),
    }


def _parse_then(value: Any) -> Row:
    """One more aggregation."""
    if not isinstance(value, dict):
        raise TranscriptError(f"`then: [{to_text(value)}]` needs maps such as {{by: value, value: count}}")
    check_keys(value, ("by", "value"), "then")
    by, choices = value.get("by", "key"), ("key", "value", "all")
    if by not in choices:
        raise TranscriptError(f"`by: {to_text(by)}` in `then` is unknown; use {' or '.join(choices)}")
    return {"by": by, "value": parse_value(value.get("value", "list"), " in `then`")}


def _parse_join(document: Mapping[str, Any]) -> JoinSpec | None:
    """How two sides are joined: a word, or a map where it is not within windows."""
    if "join" not in document:
        return None
    for key in ("value", "then"):
        if key in document:
            raise TranscriptError(f"`{key}` has no meaning beside `join`: what is shown are pairs of values")
    spec = document["join"] if isinstance(document["join"], dict) else {"how": document["join"]}
    check_keys(spec, ("how", "within", "table", "ttl"), "join")
    if spec.get("how") not in get_args(JoinType):
        raise TranscriptError(
            f"`join: {to_text(document['join'])}` is unknown; use {' or '.join(get_args(JoinType))}"
        )
    within = spec.get("within")
    if within is not None and (not isinstance(within, list) or len(within) != 2):
        raise TranscriptError(f"`within: {to_text(within)}` is not an interval; write [N, N]")
    bounds = (
        None if within is None else (parse_integer(within[0], "within"), parse_integer(within[1], "within"))
    )
    ttl = None if spec.get("ttl") is None else parse_integer(spec["ttl"], "ttl", least=1)
    return JoinSpec(spec["how"], bounds, bool(spec.get("table", False)), "ttl" in spec, ttl)


def _parse_process(document: Mapping[str, Any]) -> ProcessSpec | None:
    if "process" not in document:
        return None
    _check_beside(document, "process", "what is shown is what the processor emits")
    return processes.parse_document(document["process"])


def _parse_over(document: Mapping[str, Any]) -> OverSpec | None:
    if "over" not in document:
        return None
    _check_beside(document, "over", "what is shown are the events themselves")
    return row_frames.parse_document(document["over"])


def _check_beside(document: Mapping[str, Any], subject: str, reason: str) -> None:
    """Refuses what is about windows, where rows go on one by one."""
    for key in _OF_WINDOWS:
        if key in document:
            raise TranscriptError(
                f"`{key}` has no meaning beside `{subject}`: rows come one by one, and {reason}"
            )


def _parse_deduplicate(spec: Any) -> DeduplicateSpec | None:
    if spec is None:
        return None
    if not isinstance(spec, dict) or "within" not in spec:
        raise TranscriptError(
            f"`deduplicate: {to_text(spec)}` does not say for how long copies are known; write {{within: N}}"
        )
    check_keys(spec, ("within", "time"), "deduplicate")
    return DeduplicateSpec(parse_integer(spec["within"], "within", least=1), bool(spec.get("time", False)))


def _parse_event(value: Any, where: str) -> Row:
    """`t`, `key` and `value` of an event; a bare number is both its time and its value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"t": value, "key": None, "value": value, "side": "left", "partition": 0, "more": {}}
    if not isinstance(value, dict) or "t" not in value:
        raise TranscriptError(
            f"{where}: {to_text(value)} is not an event; write a time, or {{t: TIME, key: KEY, value: VALUE}}"
        )
    check_keys(value, ("t", "key", "value", "side", "partition", "ingested", "says"), f"{where}, an event")
    if value.get("side", "left") not in ("left", "right"):
        raise TranscriptError(f"{where}: `side: {to_text(value['side'])}` is unknown; use left or right")
    at = parse_integer(value["t"], "t")
    return {
        "t": at,
        "key": value.get("key"),
        "value": value.get("value", at),
        "side": value.get("side", "left"),
        "partition": parse_integer(value.get("partition", 0), "partition", least=0),
        "more": {name: parse_integer(value[name], name) for name in ("ingested", "says") if name in value},
    }


def _parse_pane(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise TranscriptError(
            f"{where}: {to_text(value)} is not a pane; write a map of {', '.join(PANE_KEYS)}"
        )
    check_keys(value, PANE_KEYS, f"{where}, a pane")
    timings = value.get("timing", [])
    for timing in timings if isinstance(timings, list) else [timings]:
        if timing not in TIMINGS:
            raise TranscriptError(
                f"{where}: `timing: {to_text(timing)}` is unknown; use {', '.join(TIMINGS)}"
            )
    if "values" in value and not isinstance(value["values"], list):
        raise TranscriptError(
            f"{where}: `values: {to_text(value['values'])}` is not a list; write the values in brackets, or "
            "`value` for a sum"
        )
    return value
