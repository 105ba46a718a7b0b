"""The job that a row pattern transcript speaks of: the rows of partitions are events of keys, in batches cut anywhere, on two topic partitions, with a restart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, make_dataclass, replace
from typing import Any

import polars as pl

from millrace import graph, stream, watermarks
from millrace.graph.build import match
from millrace.patterns.sql.compiled import Looking, Shown
from millrace.patterns.sql.scene import Row as Values
from millrace.testing.model.values import Row
from millrace.testing.script import Making, On, Script
from millrace.testing.transcripts.words import Unavailable, Wrong
from millrace.topics import Topic

LANE = "lane_of_rows"
"""The key: which partition a row is of."""
LONG = 2**40
"""A bound that no transcript comes to, since a stream needs one."""


@dataclass(frozen=True)
class RowSubject:
    """A row pattern and the rows of its partitions; `number` keeps jobs apart that run together."""

    looking: Looking
    lanes: Sequence[Sequence[Values]]
    number: int = 0

    def job(self) -> stream.Job:
        """Of each row of the result its partition, its time, which is its place there, and its measures."""
        for name in self.looking.schema:
            if name in graph.TIMES or name.startswith("_") or name == LANE:
                raise Wrong(
                    f"the table has a column `{name}`, a name that rows of streams use for themselves; rename it"
                )
        read = stream.read(
            Topic(f"input.transcript-{self.number}", self._event), watermark=watermarks.bounded(0)
        )
        fields = {
            name: pl.col(f"field_{place}").cast(dtype)
            for place, (name, dtype) in enumerate(self.looking.schema.items())
        }
        said = replace(self.looking.said, partition=(), order=(), span=LONG)
        found = stream.Stream(
            match.match_recognize(read.select(LANE, **fields).node, (LANE,), said, endless=False), None
        )
        shown = found.select(
            LANE, **{f"measure_{place}": pl.col(name) for place, name in enumerate(self.looking.measures)}
        )
        return stream.Job(
            f"transcript-{self.number}",
            shown.write(Topic(f"analytics.transcript-{self.number}", self._result)),
        )

    @property
    def _event(self) -> type:
        fields = [
            (f"field_{place}", _kind(name, dtype))
            for place, (name, dtype) in enumerate(self.looking.schema.items())
        ]
        return make_dataclass("Event", [(LANE, int), *fields], frozen=True)

    @property
    def _result(self) -> type:
        measures = [(name, made.dtype) for name, (made, _) in self.looking.measures.items()]
        fields = [(f"measure_{place}", _kind(*measure)) for place, measure in enumerate(measures)]
        return make_dataclass("Shown", [(LANE, int), *fields], frozen=True)

    def play(self, on: On | Making, seed: int) -> Iterator[Shown]:
        """What the operator shows, however batches are cut."""
        with closing(Script(self.job(), on=on, partitions=2)) as script:
            rest, chance, batches = self._rows(), random.Random(seed), 0  # noqa: S311 - cuts are no secret
            while rest:
                length = chance.randint(1, 3)
                batch, rest = rest[:length], rest[length:]
                script.events(*batch, partition=[row[LANE] % 2 for row in batch])
                batches += 1
                if batches == 2:
                    script.restart()
                if rest and chance.random() < 0.5:
                    script.watermark(rest[0]["event_time"])
            script.end()
            panes = script.panes()
        for pane in sorted(panes, key=lambda pane: (pane[LANE], pane["window_start"], pane["index"])):
            row = self.lanes[pane[LANE]][pane["event_time"]]
            yield Shown(
                row, tuple(pane[f"measure_{place}"] for place in range(len(self.looking.measures))), row, row
            )

    def _rows(self) -> list[Row]:
        """The rows of all partitions side by side, each at its place."""
        rows = [
            {
                LANE: lane,
                "event_time": place,
                **{f"field_{column}": value for column, value in enumerate(values)},
            }
            for lane, given in enumerate(self.lanes)
            for place, values in enumerate(given)
        ]
        return sorted(rows, key=lambda row: row["event_time"])


def _kind(name: str, dtype: pl.DataType) -> Any:
    """The type of a field."""
    inner = dtype.inner if isinstance(dtype, pl.List) else dtype
    kinds: dict[Any, type] = {
        pl.Int64: int,
        pl.Int32: int,
        pl.Float64: float,
        pl.String: str,
        pl.Boolean: bool,
        pl.Null: str,
    }
    if inner.base_type() not in kinds:
        raise Unavailable(f"{name}, which is {dtype}, in events of a topic")
    kind = kinds[inner.base_type()]
    return kind | None if inner is dtype else list[kind]  # type: ignore[valid-type]  # a type made at run time
