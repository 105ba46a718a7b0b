"""The job that a transcript speaks of, and its events and panes in the words of transcripts."""

import json
from dataclasses import dataclass, make_dataclass
from typing import Any

import polars as pl

from millrace import aggregates, stream, watermarks
from millrace.aggregates import Reduction
from millrace.graph.build.table import Table
from millrace.testing.model.values import Row
from millrace.testing.script import Script
from millrace.testing.transcripts.documents import Joining, Transcript
from millrace.testing.transcripts.processes import Processing, processor
from millrace.testing.transcripts.words import Wrong, plain, text
from millrace.topics import Topic
from millrace.watermarks import Punctuation, Watermark
from millrace.windows import Delta, Punctuated


@dataclass(frozen=True)
class Subject:
    """A transcript's job; `number` keeps those apart that run together."""

    transcript: Transcript
    number: int = 0

    @property
    def numbers(self) -> bool:
        """Whether the events' values are numbers, and not anything, kept as JSON."""
        return self.transcript.value == "sum" or isinstance(self.transcript.places, Delta | Punctuated)

    def job(self) -> stream.Job:
        """Events of key and value, aggregated once or several times."""
        said = self.transcript
        kind: type = self._number() if self.numbers else str
        topic = Topic(
            f"input.transcript-{self.number}",
            _row("Event", kind, said.watermark, sided=self.sided),
            partitions=said.partitions,
        )
        read = stream.read(topic, watermark=said.watermark or watermarks.bounded(0, idle=said.idle))
        if said.deduplicate is not None:
            same = ["value", *(["event_time"] if said.deduplicate.time else [])]
            read = read.by("key").deduplicate(*same, within=said.deduplicate.within)
        if said.process is not None:
            return self._processed(read, said.process)
        made = read.window(
            said.window,
            trigger=said.trigger,
            lateness=said.lateness,
            output=said.output,
            on_time=said.on_time,
            closing=said.closing,
            time=said.time,
        )
        if said.join is not None:
            return stream.Job(f"transcript-{self.number}", self._joined(made, said.join))
        made = made.by("key").aggregate(value=_aggregate(said.value))
        for then in said.then:
            made = (
                made.with_columns(_key_of(then["by"]).alias("key"))
                .by("key")
                .aggregate(value=_aggregate(then["value"]))
            )
        result = made.node.schema["value"]
        inner = result.inner if isinstance(result, pl.List) else result
        python: Any = {pl.Int64: int, pl.Float64: float, pl.String: str}[inner.base_type()]  # type: ignore[index]  # one of these
        shape = list[python] if isinstance(result, pl.List) else python | None
        results = Topic(f"analytics.transcript-{self.number}", _row("Result", shape))
        return stream.Job(f"transcript-{self.number}", made.write(results))

    @property
    def sided(self) -> bool:
        """Whether events are on a side: that of a join, or among rows or what is broadcast to them."""
        return self.transcript.join is not None or self.transcript.process is not None

    def _processed(self, read: stream.Stream, said: Processing) -> stream.Job:
        """What the processor emits to one topic, what it says aside to another; events of the right side are broadcast, if there are any."""
        sides = {
            event["side"] for kind, events in self.transcript.steps if kind == "events" for event in events
        }
        rows, rules = [read.filter(pl.col("side") == side) for side in ("left", "right")]
        made = rows.by("key").process(processor(said), broadcast=rules if "right" in sides else None)
        outputs = [
            way.write(
                Topic(
                    f"{name}.transcript-{self.number}",
                    make_dataclass(name.title(), [("key", str), (name, str)]),
                )
            )
            for name, way in (("emits", made), ("aside", made.side("aside")))
        ]
        return stream.Job(f"transcript-{self.number}", *outputs)

    def _joined(self, made: stream.Stream, join: Joining) -> stream.Output:
        """The values of both sides, in pairs."""
        left, right = [
            made.filter(pl.col("side") == side).select("key", **{side: pl.col("value")})
            for side in ("left", "right")
        ]
        other = Table(right, ("key",), None) if join.table else right.by("key")
        kind: Any = self._number() if self.numbers else str
        pair = make_dataclass("Pair", [("key", str), ("left", kind | None), ("right", kind | None)])
        return (
            left.by("key")
            .join(other, how=join.how, within=join.within)
            .write(Topic(f"analytics.transcript-{self.number}", pair))
        )

    def _number(self) -> type:
        values = [
            event["value"] for kind, events in self.transcript.steps if kind == "events" for event in events
        ]
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise Wrong(
                    f"`value: {self.transcript.value}` needs numbers, but an event's value is {text(value)}; use `value: list`"
                )
        return int if all(isinstance(value, int) for value in values) else float

    def event(self, said: Row) -> Row:
        """An event for the script."""
        value = said["value"] if self.numbers else plain(said["value"])
        names = {"ingested": "ingestion_time", "says": "says"}
        side = {"side": said["side"]} if self.sided else {}
        return {"key": plain(said["key"]), "value": value, "event_time": said["t"], **side} | {
            names[n]: at for n, at in said["more"].items()
        }

    def dropped(self, row: Row) -> Row:
        """A refused event, as transcripts speak of it."""
        return {
            "t": row["event_time"],
            "key": json.loads(row["key"]),
            "value": row["value"] if self.numbers else json.loads(row["value"]),
        }

    def panes(self, script: Script) -> list[Row]:
        """The panes since last asked; a withdrawn value is part of the pane that takes its place."""
        came = script.panes()
        if self.transcript.join is not None:
            return [self._pair(row) for row in came]
        if self.transcript.process is not None:
            return [_emitted(row) for row in came]
        panes = []
        for row in (row for row in came if row["op"] == "+"):
            value = self._value(row)
            said = {"key": json.loads(row["key"]), "window": [row["window_start"], row["window_end"]]}
            said["values" if isinstance(value, list) else "value"] = value
            said |= {name: row[name] for name in ("timing", "index", "settled_index", "final")} | {
                "at": row["event_time"]
            }
            taken_back = came if self.transcript.output == "value_and_retract" else []
            gone = [
                self._value(other) for other in taken_back if other["op"] == "-" and _replaces(row, other)
            ]
            panes.append({**said, "retracts": _together(gone)} if gone else said)
        return panes

    def _pair(self, row: Row) -> Row:
        """A row of a join: a pair that is new, or one that is gone."""
        values = [
            row[side] if self.numbers or row[side] is None else json.loads(row[side])
            for side in ("left", "right")
        ]
        said = {
            "key": json.loads(row["key"]),
            "window": [row["window_start"], row["window_end"]],
            "at": row["event_time"],
        }
        said["pair" if row["op"] == "+" else "gone"] = values
        return said | {name: row[name] for name in ("timing", "index", "settled_index", "final")}

    def _value(self, row: Row) -> Any:
        """The value of a pane; the sum of nothing is 0."""
        value = row["value"]
        if isinstance(value, list):
            return [one if self.numbers else json.loads(one) for one in value]
        if isinstance(value, str):
            return json.loads(value)
        return 0 if value is None else value


def _emitted(row: Row) -> Row:
    """A row that a processor emitted, or said aside."""
    said = {
        "key": json.loads(row["key"]),
        "at": row["event_time"],
        "window": [row["window_start"], row["window_end"]],
    }
    said |= {name: json.loads(row[name]) for name in ("emits", "aside") if name in row}
    return said | {name: row[name] for name in ("timing", "index", "settled_index", "final")}


def _row(name: str, value: Any, watermark: Watermark | None = None, *, sided: bool = False) -> type:
    says: list[tuple[str, Any]] = [("says", int | None)] if isinstance(watermark, Punctuation) else []
    side: list[tuple[str, Any]] = [("side", str)] if sided else []
    return make_dataclass(name, [("key", str), ("value", value), *side, *says], frozen=True)


def _aggregate(name: str) -> Reduction:
    made: dict[str, Reduction] = {
        "list": aggregates.collect("value"),
        "sum": aggregates.sum("value"),
        "count": aggregates.count(),
        "latest": aggregates.latest("value"),
    }
    return made[name]


def _key_of(by: str) -> pl.Expr:
    if by == "all":
        return pl.lit("null")
    return pl.col("key") if by == "key" else pl.col("value").cast(pl.String).fill_null("null")


def _replaces(new: Row, old: Row) -> bool:
    """Whether one pane takes the place of another: of the same window, or of one that grew into it."""
    within = new["window_start"] <= old["window_start"] and old["window_end"] <= new["window_end"]
    same = (new["window_start"], new["window_end"]) == (old["window_start"], old["window_end"])
    return within and new["key"] == old["key"] and (not same or new["index"] == old["index"])


def _together(gone: list[Any]) -> Any:
    """What a pane replaces: one value, or those of several windows that became one."""
    if len(gone) == 1:
        return gone[0]
    return (
        [one for values in gone for one in values]
        if all(isinstance(values, list) for values in gone)
        else sum(gone)
    )
