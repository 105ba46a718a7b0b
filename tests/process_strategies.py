"""Random processors and deduplications for property tests."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import polars as pl
from hypothesis import assume
from hypothesis import strategies as st

import millrace as mr
from millrace import state
from millrace.errors import DefinitionError
from millrace.processors import Context, Processor
from millrace.stream import Job, Stream
from strategies import KINDS, READINGS, A, B, Given, stateless, topics_of, watermark_of, write
from windowings import windowed

Call: TypeAlias = tuple[Any, ...]
Program: TypeAlias = Mapping[Any, Sequence[Call]]
"""What is done with a row, by the value of its `v`, and when a timer fires, by its name."""

KEYS = [("k",), ("g",), ("k", "g"), ("b",)]
NAMES = ("one", "two")
CELLS = ("total", "items", "entries", "seen")
RINGS = 6
"""How often timers of a key do something: one that always sets itself would never end."""


class Chancy(Processor):
    """Does what its program says."""

    outputs: ClassVar = {"label": pl.String, "number": pl.Int64}
    side_outputs: ClassVar = {"aside": {"label": pl.String}}
    total = state.value(0)
    items = state.list()
    entries = state.map()
    seen: state.ValueState[list[Any]] = state.value([])
    rings = state.value(0)
    rules = state.map(shared=True)

    def __init__(self, program: Program) -> None:
        self.program = program

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        for call in self.program.get(row["v"], ()):
            self.do(call, row["g"] or 0, ctx)

    def on_timer(self, ctx: Context, name: str) -> None:
        self.rings += 1
        ctx.emit(label=f"{name} {ctx.key}", number=self.total)
        for call in self.program[name] if self.rings < RINGS else ():
            self.do(call, self.rings, ctx)

    def process_broadcast(self, row: dict[str, Any], ctx: Context) -> None:
        if row["v"] is None:
            self.rules.pop(row["k"], None)
        else:
            self.rules[row["k"]] = [row["v"], ctx.time % 1_000]

    def do(self, call: Call, number: int, ctx: Context) -> None:
        match call:
            case ("add",):
                self.total += number
            case ("append",):
                self.items.append({"number": number, "at": ctx.time})
            case ("see",):
                self.seen.append(number)
            case ("put",):
                self.entries[number] = ctx.time
            case ("drop",):
                self.entries.pop(number, None)
            case ("forget", cell):
                delattr(self, cell)
            case ("timer", name, after):
                ctx.set_timer(name, ctx.time + after)
            case ("alarm", name, after):
                ctx.set_timer(name, ctx.now + after, time="processing")
            case ("cancel", name):
                ctx.cancel_timer(name)
            case ("tell",):
                label = (
                    f"{self.seen} {list(self.items)} {sorted(self.entries.items())} "
                    f"{sorted(self.rules.items(), key=repr)}"
                )
                ctx.emit(label=label, number=self.total)
            case ("aside",):
                ctx.emit(to="aside", label=f"{number} {ctx.time}")


@st.composite
def programs(draw: st.DrawFn, unit: int) -> Program:
    waits = st.integers(-2, 12).map(lambda n: n * unit)
    calls = st.one_of(
        st.sampled_from(
            [("add",), ("append",), ("see",), ("put",), ("drop",), ("tell",), ("tell",), ("aside",)]
        ),
        st.tuples(st.just("forget"), st.sampled_from(CELLS)),
        st.tuples(st.sampled_from(["timer", "timer", "alarm"]), st.sampled_from(NAMES), waits),
        st.tuples(st.just("cancel"), st.sampled_from(NAMES)),
    )
    return {label: draw(st.lists(calls, max_size=4)) for label in [*dict.fromkeys(READINGS["v"]), *NAMES]}


@st.composite
def chancy(draw: st.DrawFn, unit: int) -> Processor:
    """A processor whose cells live for ever, or not."""
    ttls = [draw(st.sampled_from([None, 3 * unit, 9 * unit])) for _ in CELLS]
    makes: list[Any] = [
        lambda ttl: state.value(0, ttl=ttl),
        lambda ttl: state.list(ttl=ttl),
        lambda ttl: state.map(ttl=ttl),
        lambda ttl: state.value([], ttl=ttl),
    ]
    cells = {name: make(ttl) for name, make, ttl in zip(CELLS, makes, ttls, strict=True)}
    made: Processor = type("Chancy", (Chancy,), cells)(draw(programs(unit)))
    return made


@st.composite
def unique(draw: st.DrawFn, stream: Stream, unit: int) -> Stream:
    """Without copies, of one time or of some time."""
    keys = draw(st.sampled_from(KEYS))
    columns = draw(st.sampled_from([("v",), ("v", "event_time"), ("event_time",), ()]))
    assume({*keys, *columns} <= {*stream.columns, "event_time"})
    return stream.group_by(*keys).deduplicate(*columns, within=draw(st.integers(1, 15)) * unit)


@st.composite
def processes(draw: st.DrawFn) -> Given:
    """One job with a deduplication, a processor, or one after the other,
    and now and then an aggregation that follows.
    """
    unit = draw(st.sampled_from([1, 1_000]))
    rows = draw(stateless(mr.read(A, watermark=draw(watermark_of(unit, False))), dict(KINDS), 0))
    assume({"k", "g", "v", "b"} <= {*rows.columns})
    kind = draw(st.sampled_from(["process", "process", "both", "deduplicate"]))
    rows = draw(unique(rows, unit)) if kind != "process" else rows
    outputs = []
    if kind == "deduplicate":
        outputs.append(write(rows, "analytics.unique"))
    else:
        rules = mr.read(B, watermark=draw(watermark_of(unit, False))) if draw(st.booleans()) else None
        made = rows.group_by(*draw(st.sampled_from(KEYS))).process(draw(chancy(unit)), broadcast=rules)
        outputs += [write(made, "analytics.said"), write(made.side_output("aside"), "analytics.aside")]
        rows = made
    if draw(st.booleans()):
        try:
            counted = (
                draw(windowed(rows, unit, False))
                .group_by("label" if kind != "deduplicate" else "k")
                .count(name="times")
            )
        except DefinitionError:
            assume(False)
        outputs.append(write(counted, "analytics.counted"))
    job = Job("processing", *outputs)
    return Given((job,), unit, {topic: draw(st.sampled_from([1, 1, 2])) for topic in sorted(topics_of(job))})
