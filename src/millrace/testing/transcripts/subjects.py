"""The job of a transcript, and its events and panes in the words of transcripts."""

import json
from dataclasses import dataclass, make_dataclass
from typing import Any

import polars as pl

from millrace import evictors, stream, watermarks
from millrace.graph.build.table import Table
from millrace.testing.model.values import Row
from millrace.testing.script import Script
from millrace.testing.transcripts.documents import JoinSpec, Transcript
from millrace.testing.transcripts.processes import ProcessSpec, make_processor
from millrace.testing.transcripts.row_frames import OverSpec
from millrace.testing.transcripts.words import TranscriptError, to_canonical_text, to_text
from millrace.topics import Topic
from millrace.watermarks import Punctuation, Watermark
from millrace.windows import Delta, Punctuated


@dataclass(frozen=True)
class TranscriptJob:
    """A transcript's job; `number` tells jobs apart that run together."""

    transcript: Transcript
    number: int = 0

    @property
    def has_numbers(self) -> bool:
        """Whether all values of events are numbers; otherwise they are kept as JSON."""
        is_about_numbers = (
            isinstance(self.transcript.inner_window, Delta | Punctuated)
            or isinstance(self.transcript.evict, evictors.DeltaEvictor)
            or self.transcript.over is not None
        )
        return self.transcript.value.needs_numbers or is_about_numbers

    def build_job(self) -> stream.Job:
        """Events of key and value, aggregated once or several times."""
        transcript = self.transcript
        value_type: Any = self._number_type() if self.has_numbers else str
        if transcript.over is not None:
            value_type = value_type | None
        topic = Topic(
            f"input.transcript-{self.number}",
            _row_type("Event", value_type, transcript.watermark, has_sides=self.has_sides),
            partitions=transcript.partitions,
        )
        read = stream.read(
            topic, watermark=transcript.watermark or watermarks.bounded(0, idle=transcript.idle)
        )
        if transcript.deduplicate is not None:
            identity = ["value", *(["event_time"] if transcript.deduplicate.same_time else [])]
            read = read.group_by("key").deduplicate(*identity, within=transcript.deduplicate.within)
        if transcript.process is not None:
            return self._build_process(read, transcript.process)
        if transcript.over is not None:
            return self._build_over(read, transcript.over)
        stream_so_far = read.window(
            transcript.window,
            trigger=transcript.trigger,
            lateness=transcript.lateness,
            accumulation=transcript.accumulation,
            on_time=transcript.on_time,
            closing=transcript.closing,
            time=transcript.time,
            evict=transcript.evict,
        )
        if transcript.join is not None:
            rows = stream_so_far if transcript.join.has_window else read
            return stream.Job(f"transcript-{self.number}", self._build_join(rows, transcript.join))
        stream_so_far = transcript.value.apply(stream_so_far)
        for then in transcript.then:
            stream_so_far = then["value"].apply(
                stream_so_far.with_columns(_key_expression(then["by"]).alias("key"))
            )
        shape = _python_type(stream_so_far.node.schema["value"])
        ranked = [("rank", int)] if self.is_ranking else []
        results = Topic(
            f"analytics.transcript-{self.number}",
            make_dataclass("Result", [("key", str), ("value", shape), *ranked], frozen=True),
        )
        return stream.Job(f"transcript-{self.number}", stream_so_far.write(results))

    @property
    def is_ranking(self) -> bool:
        """Whether panes are shown row by row, with ranks."""
        specs = [self.transcript.value, *(then["value"] for then in self.transcript.then)]
        return bool(specs[-1].is_ranking)

    @property
    def has_sides(self) -> bool:
        """Whether events belong to a side: of a join, or to rows or broadcast rows."""
        return self.transcript.join is not None or self.transcript.process is not None

    def _build_process(self, read: stream.Stream, spec: ProcessSpec) -> stream.Job:
        """Writes results to one topic and the side output to another.

        Events of the right side are broadcast.
        """
        sides = {
            event["side"] for kind, events in self.transcript.steps if kind == "events" for event in events
        }
        rows, rules = [read.filter(pl.col("side") == side) for side in ("left", "right")]
        processed = rows.group_by("key").process(
            make_processor(spec), broadcast=rules if "right" in sides else None
        )
        outputs = [
            output_stream.write(
                Topic(
                    f"{name}.transcript-{self.number}",
                    make_dataclass(name.title(), [("key", str), (name, str)]),
                )
            )
            for name, output_stream in (("emits", processed), ("aside", processed.side_output("aside")))
        ]
        return stream.Job(f"transcript-{self.number}", *outputs)

    def _build_over(self, read: stream.Stream, spec: OverSpec) -> stream.Job:
        """Events with the columns beside them."""
        framed = spec.apply(read)
        fields = [(name, _python_type(framed.node.schema[name])) for name in ("key", "value", *spec.columns)]
        topic = Topic(f"analytics.transcript-{self.number}", make_dataclass("Framed", fields))
        return stream.Job(f"transcript-{self.number}", framed.write(topic))

    def _build_join(self, rows: stream.Stream, join: JoinSpec) -> stream.Output:
        """The values of both sides, in pairs."""
        left, right = [
            rows.filter(pl.col("side") == side).select("key", **{side: pl.col("value")})
            for side in ("left", "right")
        ]
        other = Table(right, ("key",), None) if join.is_table else right.group_by("key")
        value_type: Any = self._number_type() if self.has_numbers else str
        pair = make_dataclass(
            "Pair", [("key", str), ("left", value_type | None), ("right", value_type | None)]
        )
        joined = left.group_by("key").join(other, how=join.how, within=join.within, ttl=join.ttl)
        if "right" not in joined.columns:  # semi and anti
            joined = joined.with_columns(right=pl.lit(None, joined.node.schema["left"]))
        return joined.write(Topic(f"analytics.transcript-{self.number}", pair))

    def _number_type(self) -> type:
        values = [
            event["value"] for kind, events in self.transcript.steps if kind == "events" for event in events
        ]
        if self.transcript.over is not None:
            values = [value for value in values if value is not None]
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TranscriptError(
                    f"`value: {self.transcript.value.kind}` needs numbers, but an event's value is "
                    f"{to_text(value)}; use `value: list`"
                )
        return int if all(isinstance(value, int) for value in values) else float

    def to_event(self, given: Row) -> Row:
        """An event for the script."""
        value = given["value"] if self.has_numbers else to_canonical_text(given["value"])
        names = {"ingested": "ingestion_time", "says": "says"}
        side = {"side": given["side"]} if self.has_sides else {}
        return {"key": to_canonical_text(given["key"]), "value": value, "event_time": given["t"], **side} | {
            names[n]: at for n, at in given["more"].items()
        }

    def to_dropped(self, row: Row) -> Row:
        """A refused event, in the words of transcripts."""
        return {
            "t": row["event_time"],
            "key": json.loads(row["key"]),
            "value": row["value"] if self.has_numbers else json.loads(row["value"]),
        }

    def read_panes(self, script: Script) -> list[Row]:
        """The panes since the last call; a retracted value is part of the pane that replaces it."""
        rows = script.panes()
        if self.transcript.join is not None:
            return [self._to_pair(row) for row in rows]
        if self.transcript.process is not None:
            return [_to_emission(row) for row in rows]
        if self.transcript.over is not None:
            return [self.transcript.over.read_row(row) for row in rows]
        if self.is_ranking:
            return [self._to_ranked(row) for row in rows]
        panes = []
        for row in (row for row in rows if row["op"] == "+"):
            value = self._pane_value(row)
            pane = {"key": json.loads(row["key"]), "window": [row["window_start"], row["window_end"]]}
            pane["values" if isinstance(value, list) else "value"] = value
            pane |= {name: row[name] for name in ("timing", "index", "settled_index", "final")} | {
                "at": row["event_time"]
            }
            retractions = rows if self.transcript.accumulation == "retracting" else []
            retracted = [
                self._pane_value(other)
                for other in retractions
                if other["op"] == "-" and _replaces(row, other)
            ]
            panes.append({**pane, "retracts": _combine_retracted(retracted)} if retracted else pane)
        return panes

    def _to_pair(self, row: Row) -> Row:
        """A row of a join: a pair that is added or retracted."""
        values = [
            row[side] if self.has_numbers or row[side] is None else json.loads(row[side])
            for side in ("left", "right")
        ]
        pane = {
            "key": json.loads(row["key"]),
            "window": [row["window_start"], row["window_end"]],
            "at": row["event_time"],
        }
        pane["pair" if row["op"] == "+" else "gone"] = values
        return pane | {name: row[name] for name in ("timing", "index", "settled_index", "final")}

    def _to_ranked(self, row: Row) -> Row:
        """A row of a ranking that is added or withdrawn."""
        pane = {"key": json.loads(row["key"]), "window": [row["window_start"], row["window_end"]]}
        pane |= {"value" if row["op"] == "+" else "gone": self._pane_value(row), "at": row["event_time"]}
        return pane | {name: row[name] for name in ("rank", "timing", "index", "settled_index", "final")}

    def _pane_value(self, row: Row) -> Any:
        """The value of a pane; the sum of nothing is 0."""
        value = row["value"]
        if isinstance(value, list):
            return [one if self.has_numbers else json.loads(one) for one in value]
        if isinstance(value, str):
            return json.loads(value)
        return 0 if value is None else value


def _to_emission(row: Row) -> Row:
    """A row that a processor emitted, to its results or to its side output."""
    pane = {
        "key": json.loads(row["key"]),
        "at": row["event_time"],
        "window": [row["window_start"], row["window_end"]],
    }
    pane |= {name: json.loads(row[name]) for name in ("emits", "aside") if name in row}
    return pane | {name: row[name] for name in ("timing", "index", "settled_index", "final")}


def _python_type(dtype: pl.DataType) -> Any:
    """The type of a field for a column of numbers, texts, or lists of either."""
    inner = dtype.inner if isinstance(dtype, pl.List) else dtype
    python_type: Any = {pl.Int64: int, pl.Float64: float, pl.String: str}[inner.base_type()]  # type: ignore[index]  # one of these
    return list[python_type] if isinstance(dtype, pl.List) else python_type | None


def _row_type(name: str, value: Any, watermark: Watermark | None = None, *, has_sides: bool = False) -> type:
    says: list[tuple[str, Any]] = [("says", int | None)] if isinstance(watermark, Punctuation) else []
    side: list[tuple[str, Any]] = [("side", str)] if has_sides else []
    return make_dataclass(name, [("key", str), ("value", value), *side, *says], frozen=True)


def _key_expression(by: str) -> pl.Expr:
    if by == "all":
        return pl.lit("null")
    return pl.col("key") if by == "key" else pl.col("value").cast(pl.String).fill_null("null")


def _replaces(new: Row, old: Row) -> bool:
    """Whether one pane replaces another: of the same window, or of one that grew into it."""
    within = new["window_start"] <= old["window_start"] and old["window_end"] <= new["window_end"]
    same = (new["window_start"], new["window_end"]) == (old["window_start"], old["window_end"])
    return within and new["key"] == old["key"] and (not same or new["index"] == old["index"])


def _combine_retracted(retracted: list[Any]) -> Any:
    """The value that a pane replaces, or the values of several windows that were merged."""
    if len(retracted) == 1:
        return retracted[0]
    return (
        [one for values in retracted for one in values]
        if all(isinstance(values, list) for values in retracted)
        else sum(retracted)
    )
