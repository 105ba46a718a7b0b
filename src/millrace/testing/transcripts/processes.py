"""Transcripts of processors: the values of events are calls that the processor makes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl

from millrace import state
from millrace.processors import Context, Processor
from millrace.testing.transcripts.words import TranscriptError, check_keys, parse_integer, to_text

CALLS = ("append", "put", "drop", "forget", "timer", "after", "alarm", "cancel", "emit", "aside")
CELLS = ("total", "items", "entries")
SHARED = ("put", "drop")
"""The calls that a broadcast row may hold: they change the rules."""


@dataclass(frozen=True)
class ProcessSpec:
    """The map under `process`."""

    ttl: int | None = None
    """The time to live of state."""
    on_timer: Mapping[str, list[Any]] = field(default_factory=dict)
    """The calls of a timer by its name; others emit their name."""


def parse_document(spec: Any) -> ProcessSpec:
    """Parses the map under `process`; refuses calls that do not exist."""
    if not isinstance(spec, dict):
        raise TranscriptError(
            f"`process: {to_text(spec)}` is not a map; it may have ttl and on_timer, or be empty"
        )
    check_keys(spec, ("ttl", "on_timer"), "process")
    ttl = None if spec.get("ttl") is None else parse_integer(spec["ttl"], "ttl", least=1)
    timer_calls = spec.get("on_timer", {})
    if not isinstance(timer_calls, dict):
        raise TranscriptError(
            f"`on_timer: {to_text(timer_calls)}` is not a map from the names of timers to calls"
        )
    return ProcessSpec(
        ttl, {str(name): check_calls(calls, "on_timer") for name, calls in timer_calls.items()}
    )


def check_calls(value: Any, where: str, *, is_shared: bool = False) -> list[Any]:
    """One call or a list of them; a number is added to `total`."""
    calls = value if isinstance(value, list) else [value]
    for call in calls:
        if isinstance(call, int) and not isinstance(call, bool) and not is_shared:
            continue
        if not isinstance(call, dict) or len(call) != 1:
            raise TranscriptError(
                f"{where}: {to_text(call)} is not a call of a processor; write a number, or one of "
                f"{', '.join(CALLS)}"
            )
        check_keys(
            call, SHARED if is_shared else CALLS, f"{where}, {'a broadcast row' if is_shared else 'a call'}"
        )
        ((name, argument),) = call.items()
        if name in ("put", "timer", "after", "alarm") and not isinstance(argument, dict):
            raise TranscriptError(
                f"{where}: `{name}: {to_text(argument)}` is not a map, such as {{{name}: {{a: 1}}}}"
            )
        if name == "forget" and argument not in CELLS:
            raise TranscriptError(
                f"{where}: `forget: {to_text(argument)}` is unknown; use {' or '.join(CELLS)}"
            )
    return calls


class ScriptedProcessor(Processor):
    """Makes the calls that the values of events name."""

    outputs: ClassVar = {"emits": pl.String}
    side_outputs: ClassVar = {"aside": {"aside": pl.String}}
    total = state.value(0)
    items = state.list()
    entries = state.map()
    rules = state.map(shared=True)

    def __init__(self, on_timer: Mapping[str, list[Any]]) -> None:
        """`on_timer`: the calls of timers, by name."""
        self.timer_calls = on_timer

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        """Makes the calls of an event."""
        self.run_calls(_as_list(json.loads(row["value"])), ctx)

    def on_timer(self, ctx: Context, name: str) -> None:
        """Makes the calls of a timer."""
        self.run_calls(self.timer_calls.get(name, [{"emit": name}]), ctx)

    def process_broadcast(self, row: dict[str, Any], ctx: Context) -> None:  # noqa: ARG002 - shared cells need none
        """Makes the calls of a broadcast row."""
        for call in _as_list(json.loads(row["value"])):
            if "put" in call:
                self.rules.update(call["put"])
            else:
                self.rules.pop(call["drop"], None)

    def run_calls(self, calls: Iterable[Any], ctx: Context) -> None:
        """Makes calls in order."""
        for call in calls:
            name, argument = next(iter(call.items())) if isinstance(call, dict) else ("add", call)
            match name:
                case "add":
                    self.total += argument
                case "append":
                    self.items.append(argument)
                case "put":
                    self.entries.update(argument)
                case "drop":
                    self.entries.pop(argument, None)
                case "forget":
                    delattr(self, argument)
                case "emit":
                    ctx.emit(emits=self.read_cell(argument))
                case "aside":
                    ctx.emit(to="aside", aside=self.read_cell(argument))
                case "cancel":
                    ctx.cancel_timer(argument)
                case _:
                    _set_timers(ctx, name, argument)

    def read_cell(self, value: Any) -> str:
        """The content of a state, or the value itself, as JSON."""
        match value:
            case "total":
                value = self.total
            case "items":
                value = list(self.items)
            case "entries" | "rules":
                value = dict(getattr(self, value))
        return json.dumps(value, ensure_ascii=False)


def make_processor(spec: ProcessSpec) -> Processor:
    """The processor of a transcript, with the time to live that it names."""
    collections_by_name = {"items": state.list, "entries": state.map}
    cells = {
        "total": state.value(0, ttl=spec.ttl),
        **{name: make(ttl=spec.ttl) for name, make in collections_by_name.items()},
    }
    instance: Processor = type("Lasting", (ScriptedProcessor,), cells)(spec.on_timer)
    return instance


def _set_timers(ctx: Context, call: str, times: Mapping[str, int]) -> None:
    for name, at in times.items():
        if call == "alarm":
            ctx.set_timer(name, at, time="processing")
        else:
            ctx.set_timer(name, at + ctx.time if call == "after" else at)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
