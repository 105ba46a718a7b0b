"""Transcripts of processors: the values of events are the calls that the processor makes when it is given them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl

from millrace import processors
from millrace.processors import Context, Processor
from millrace.testing.transcripts.words import Wrong, known, number, text

CALLS = ("append", "put", "drop", "forget", "timer", "after", "alarm", "cancel", "emit", "aside")
CELLS = ("total", "items", "entries")
SHARED = ("put", "drop")
"""The calls that a broadcast row may hold: they change the rules."""


@dataclass(frozen=True)
class Processing:
    """What a document says under `process`."""

    ttl: int | None = None
    """How long cells are kept."""
    on_timer: Mapping[str, list[Any]] = field(default_factory=dict)
    """What a timer does, by its name; others emit their name."""


def understand(said: Any) -> Processing:
    """What stands under `process`; refuses calls that do not exist."""
    if not isinstance(said, dict):
        raise Wrong(f"`process: {text(said)}` is no map; it may have ttl and on_timer, or be empty")
    known(said, ("ttl", "on_timer"), "process")
    ttl = None if said.get("ttl") is None else number(said["ttl"], "ttl", least=1)
    rings = said.get("on_timer", {})
    if not isinstance(rings, dict):
        raise Wrong(f"`on_timer: {text(rings)}` is no map from the names of timers to calls")
    return Processing(ttl, {str(name): checked(calls, "on_timer") for name, calls in rings.items()})


def checked(said: Any, where: str, *, shared: bool = False) -> list[Any]:
    """One call or a list of them; a number is added to `total`."""
    calls = said if isinstance(said, list) else [said]
    for call in calls:
        if isinstance(call, int) and not isinstance(call, bool) and not shared:
            continue
        if not isinstance(call, dict) or len(call) != 1:
            raise Wrong(
                f"{where}: {text(call)} is no call of a processor; write a number, or one of {', '.join(CALLS)}"
            )
        known(call, SHARED if shared else CALLS, f"{where}, {'a broadcast row' if shared else 'a call'}")
        ((name, what),) = call.items()
        if name in ("put", "timer", "after", "alarm") and not isinstance(what, dict):
            raise Wrong(f"{where}: `{name}: {text(what)}` is no map, such as {{{name}: {{a: 1}}}}")
        if name == "forget" and what not in CELLS:
            raise Wrong(f"{where}: `forget: {text(what)}` is unknown; use {' or '.join(CELLS)}")
    return calls


class Scripted(Processor):
    """Does what the values of events say."""

    shows: ClassVar = {"emits": pl.String}
    sides: ClassVar = {"aside": {"aside": pl.String}}
    total = processors.value(0)
    items = processors.items()
    entries = processors.entries()
    rules = processors.entries(shared=True)

    def __init__(self, on_timer: Mapping[str, list[Any]]) -> None:
        """`on_timer`: what timers do, by name."""
        self.rings = on_timer

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        """The calls of an event."""
        self.do(_listed(json.loads(row["value"])), ctx)

    def on_timer(self, ctx: Context, name: str) -> None:
        """Those of a timer."""
        self.do(self.rings.get(name, [{"emit": name}]), ctx)

    def process_broadcast(self, row: dict[str, Any], ctx: Context) -> None:  # noqa: ARG002 - shared cells need none
        """Those of a rule."""
        for call in _listed(json.loads(row["value"])):
            if "put" in call:
                self.rules.update(call["put"])
            else:
                self.rules.pop(call["drop"], None)

    def do(self, calls: Iterable[Any], ctx: Context) -> None:
        """One call after the other."""
        for call in calls:
            name, what = next(iter(call.items())) if isinstance(call, dict) else ("add", call)
            match name:
                case "add":
                    self.total += what
                case "append":
                    self.items.append(what)
                case "put":
                    self.entries.update(what)
                case "drop":
                    self.entries.pop(what, None)
                case "forget":
                    delattr(self, what)
                case "emit":
                    ctx.emit(emits=self.told(what))
                case "aside":
                    ctx.emit_to("aside", aside=self.told(what))
                case "cancel":
                    ctx.cancel(what)
                case _:
                    _set(ctx, name, what)

    def told(self, what: Any) -> str:
        """What a cell holds now, or the value itself, as JSON."""
        match what:
            case "total":
                what = self.total
            case "items":
                what = list(self.items)
            case "entries" | "rules":
                what = dict(getattr(self, what))
        return json.dumps(what, ensure_ascii=False)


def processor(said: Processing) -> Processor:
    """The processor of a transcript, whose cells live as long as it says."""
    makes = {"items": processors.items, "entries": processors.entries}
    cells = {
        "total": processors.value(0, ttl=said.ttl),
        **{name: make(ttl=said.ttl) for name, make in makes.items()},
    }
    made: Processor = type("Lasting", (Scripted,), cells)(said.on_timer)
    return made


def _set(ctx: Context, call: str, times: Mapping[str, int]) -> None:
    for name, at in times.items():
        if call == "alarm":
            ctx.set_alarm(name, at)
        else:
            ctx.set_timer(name, at + ctx.time if call == "after" else at)


def _listed(said: Any) -> list[Any]:
    return said if isinstance(said, list) else [said]
