"""A job, run moment by moment on the local engine, and written down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from millrace import durations, graph, panes
from millrace.devtools.timeline.seen import Dot, Fate, Moment, Pane, Timeline
from millrace.durations import Duration
from millrace.engine.sink import Results
from millrace.engine.source import Piece
from millrace.errors import DefinitionError
from millrace.log import Where
from millrace.log.codecs.codec import Decoded
from millrace.log.dead import DEAD
from millrace.runners.local import Engine
from millrace.runners.replay import Given, Place, whole
from millrace.stream import Job
from millrace.testing.model.values import Row

MOMENTS = 240
"""Into how many batches a run is cut at most; with fewer times of arrival, each is a batch of its own."""
DOTS = 2_000
"""How many events are drawn at most; of more, every so manieth."""
TICK = 1_000
"""How often a batch comes while something waits for the clock."""


def record(
    job: Job,
    events: Given,
    *,
    log: Where | None = None,
    key: str | None = None,
    topic: str | None = None,
    since: Duration = 0,
    until: Duration | None = None,
) -> Timeline:
    """Runs the job over events in the order of their arrival, as `replay` takes them, and notes all that is seen.

    `key`: only the events and panes of this key, `value` or `column=value,…`; `topic`: the output to look at, by default the first that
    holds panes; `since`, `until`: the part to look at, counted from the first arrival. Processing time is ingestion time.
    """
    engine = Engine([job])
    rows = {place: _arriving(frame) for place, frame in whole(engine, events, log).items()}
    if not any(frame.height for frame in rows.values()):
        raise DefinitionError(f"there are no events for {job.name!r}, so there is nothing to draw")
    watched = _watched(job, topic)
    recorder = _Recorder(job, watched, _wanted(watched, key))
    stretch = _stretch(
        rows,
        durations.not_negative(since, name="since"),
        None if until is None else durations.positive(until, name="until"),
    )
    before = stretch[0] - 1
    engine.step(_pieces(rows, None, before), before)
    for now in _moments(engine, rows, stretch):
        pieces = _pieces(rows, before, now)
        recorder.note(now, pieces, engine.step(pieces, now))
        before = now
    streamed = len(recorder.panes)
    if until is None:
        recorder.note(before, [], engine.step([], before, end=True))
    if key and not recorder.dots and not recorder.panes:
        raise DefinitionError(
            f"key={key!r} has neither events nor panes here; results are by {', '.join(_keys(watched))}"
        )
    return recorder.timeline(key or "", at_end=len(recorder.panes) - streamed, ended=until is None)


def _arriving(frame: pl.DataFrame) -> pl.DataFrame:
    """With the time at which each row is seen: a log is read in its order, so never before the row ahead of it."""
    return frame.with_columns(pl.col("ingestion_time").cum_max().alias("_seen"))


def _stretch(rows: Mapping[Place, pl.DataFrame], since: int, until: int | None) -> tuple[int, int]:
    """The first and the last moment to look at."""
    seen = pl.concat([frame["_seen"] for frame in rows.values()])
    first, last = seen.min(), seen.max()
    assert isinstance(first, int), "there are rows"
    assert isinstance(last, int), "there are rows"
    if first + since > last:
        raise DefinitionError(
            f"since={durations.text(since)} is after the last event, which came {durations.text(last - first)} after the first"
        )
    return first + since, last if until is None else max(first + since, min(last, first + until))


def _moments(engine: Engine, rows: Mapping[Place, pl.DataFrame], stretch: tuple[int, int]) -> list[int]:
    """The clocks of the batches."""
    first, last = stretch
    arrived = pl.concat([frame["_seen"] for frame in rows.values()])
    seen = arrived.filter(arrived.is_between(first, last)).unique().to_list()
    apart = max(1, -(-(last - first) // MOMENTS))
    moments = {*seen} if len(seen) <= MOMENTS else {*range(first, last, apart)}
    if engine.plan.ticks:
        moments |= {*range(first, last, max(TICK, apart))}
    return sorted(moments | {last})


def _pieces(rows: Mapping[Place, pl.DataFrame], after: int | None, until: int) -> list[Piece]:
    """What arrives in `(after, until]`; None: since ever."""
    late = (
        pl.col("_seen") <= until
        if after is None
        else pl.col("_seen").is_between(after, until, closed="right")
    )
    return [_piece(place, frame.filter(late)) for place, frame in rows.items()]


def _piece(place: Place, frame: pl.DataFrame) -> Piece:
    if frame.is_empty():
        return Piece(*place)
    return Piece(*place, Decoded(frame.drop("_seen"), pl.DataFrame(schema=DEAD)))


def _watched(job: Job, topic: str | None) -> graph.Write:
    """The output to look at."""
    shown = [
        write
        for write in job.outputs
        if "window_end" in write.schema and (topic is None or write.topic.name == topic)
    ]
    if not shown:
        said = f"does not write panes to {topic!r}" if topic else "has no windows"
        raise DefinitionError(
            f"job {job.name!r} {said}, so there is no time to draw; name a job that aggregates, and its topic"
        )
    return shown[0]


def _keys(write: graph.Write) -> list[str]:
    origins = [edge.origin for edge in graph.edges(write)]
    keys = next((origin.keys for origin in origins if isinstance(origin, graph.Operation)), ())
    return [column for column in keys if column in write.schema]


def _wanted(write: graph.Write, key: str | None) -> dict[str, str]:
    """What `key` says of which column."""
    if not key:
        return {}
    keys, parts = _keys(write), key.split(",")
    if len(keys) == 1 and not key.startswith(f"{keys[0]}="):
        return {keys[0]: key}
    wanted = dict(part.split("=", 1) for part in parts if "=" in part)
    if len(wanted) < len(parts) or set(wanted) - set(keys):
        raise DefinitionError(
            f"key={key!r}: results are by {', '.join(keys)}; write {','.join(f'{name}=VALUE' for name in keys)}"
        )
    return wanted


def _these(frame: pl.DataFrame, wanted: Mapping[str, str]) -> pl.DataFrame:
    """The rows of the key, as far as their columns say."""
    conditions = [
        pl.col(column).cast(pl.String) == value for column, value in wanted.items() if column in frame.columns
    ]
    return frame.filter(*conditions) if conditions else frame


@dataclass(eq=False)
class _Recorder:
    job: Job
    write: graph.Write
    wanted: Mapping[str, str]
    dots: list[Dot] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    panes: list[Pane] = field(default_factory=list)

    def note(self, now: int, pieces: list[Piece], results: Results) -> None:
        """What a batch brought, and what came of it."""
        low = self.moments[-1].watermark if self.moments and not self._by_clock() else None
        refused = self._refused(results)
        for piece in pieces:
            self.dots += self._dots(piece, now, low, refused)
        self.moments.append(Moment(now, self._watermark(results)))
        if self.write.topic.name in results.outputs:
            self.panes += self._panes(results.outputs[self.write.topic.name], now)

    def timeline(self, key: str, *, at_end: int, ended: bool) -> Timeline:
        """All that was noted; of too many events, every so manieth, and those that were refused."""
        apart = -(-len(self.dots) // DOTS)
        shown = [dot for i, dot in enumerate(self.dots) if i % apart == 0 or dot.fate == "refused"]
        left_out = len(self.dots) - len(shown)
        about = self.job.name, self.write.topic.name, key
        return Timeline(
            *about,
            tuple(shown),
            tuple(self.moments),
            tuple(self.panes),
            at_end,
            ended,
            self._by_clock(),
            left_out,
        )

    def _by_clock(self) -> bool:
        """Whether the windows lie in processing time."""
        origins = [edge.origin for edge in graph.edges(self.write)]
        return any(isinstance(origin, graph.Operation) and origin.windowing.by_clock for origin in origins)

    def _refused(self, results: Results) -> dict[tuple[str, int, int], str]:
        late = results.late.get(self.job.name)
        if late is None:
            return {}
        told = late.filter(pl.col("offset").is_not_null())
        rows = told.select("topic", "partition", "offset", "reason", "missed").iter_rows()
        return {
            (topic, part, offset): f"{reason}: missing from {missed} windows"
            for topic, part, offset, reason, missed in rows
        }

    def _dots(
        self, piece: Piece, now: int, low: int | None, refused: Mapping[tuple[str, int, int], str]
    ) -> Iterator[Dot]:
        if piece.rows is None:
            return
        mine = self._of_key(piece)
        for offset, at in piece.rows.select("_off", "event_time").iter_rows():
            if mine is not None and offset not in mine:
                continue
            why = refused.get((piece.topic, piece.partition, offset))
            fate: Fate = "refused" if why else "behind" if low is not None and at < low else "taken"
            about = f"{piece.topic}[{piece.partition}] {offset}"
            yield Dot(at, now, fate, f"{about}, {why}" if why else about)

    def _of_key(self, piece: Piece) -> set[int] | None:
        """The offsets of rows that have to do with the key; None: all of them."""
        if not self.wanted or piece.rows is None:
            return None
        found: set[int] = set()
        absent = pl.lit(None)
        riding = [absent.cast(dtype).alias(name) for name, dtype in graph.INTERNAL.items() if name != "_off"]
        for node in self.job.operator_ids:
            for edge in graph.edges(node):
                if isinstance(edge.origin, graph.Read) and edge.origin.topic.name == piece.topic:
                    found |= {*_these(edge.apply(piece.rows.with_columns(riding)), self.wanted)["_off"]}
        return found

    def _watermark(self, results: Results) -> int | None:
        """Of the operator whose panes are looked at."""
        lows = [
            results.watermarks.get(self.job.operator_ids[e.origin])
            for e in graph.edges(self.write)
            if e.origin in self.job.operator_ids
        ]
        known = [low for low in lows if low is not None]
        return min(known) if known and len(known) == len(lows) else None

    def _panes(self, frame: pl.DataFrame, now: int) -> list[Pane]:
        """In the order of windows and keys, which a batch leaves open; what is taken back stands before what takes its place."""
        keys = _keys(self.write)
        values = [
            c for c in frame.columns if c not in keys and c not in panes.COLUMNS and c not in graph.TIMES
        ]
        shown = [
            self._pane(row, keys, values, now) for row in _these(frame, self.wanted).iter_rows(named=True)
        ]
        return sorted(
            shown, key=lambda pane: (pane.window, pane.index, pane.key, pane.op == panes.ADD, pane.value)
        )

    def _pane(self, row: Row, keys: list[str], values: list[str], now: int) -> Pane:
        key = "" if self.wanted else ", ".join(_text(row[column]) for column in keys)
        value = (
            _text(row[values[0]])
            if len(values) == 1
            else ", ".join(f"{name} {_text(row[name])}" for name in values)
        )
        window = row["window_start"], row["window_end"]
        return Pane(now, window, key, value, row["timing"], row["index"], row["final"], row["op"])


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
