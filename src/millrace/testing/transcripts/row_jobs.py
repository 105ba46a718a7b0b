"""The job of a row pattern transcript.

Rows of partitions are events of keys, in batches cut at random, on two topic partitions, with a restart.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, make_dataclass, replace
from typing import Any

import polars as pl

from millrace import graph, stream, watermarks
from millrace.graph.build import match
from millrace.patterns.sql.compiled import CompiledPattern, ResultRow
from millrace.patterns.sql.match_context import Row as Values
from millrace.testing.model.values import Row
from millrace.testing.script import MakeBackend, On, Script
from millrace.testing.transcripts.words import TranscriptError, Unavailable
from millrace.topics import Topic

PARTITION_NUMBER = "lane_of_rows"
"""The key: which partition a row is of."""
LONG_SPAN = 2**40
"""A stream needs a bound; no transcript reaches this one."""


@dataclass(frozen=True)
class RowTranscriptJob:
    """A row pattern and the rows of its partitions; `number` tells jobs apart that run together."""

    compiled: CompiledPattern
    partitions: Sequence[Sequence[Values]]
    number: int = 0

    def build_job(self) -> stream.Job:
        """Emits the partition, the time and the measures of each result.

        The time of a row is its place in the partition.
        """
        for name in self.compiled.schema:
            if name in graph.TIME_COLUMNS or name.startswith("_") or name == PARTITION_NUMBER:
                raise TranscriptError(
                    f"the table has a column `{name}`, a name that rows of streams use "
                    "for themselves; rename it"
                )
        read = stream.read(
            Topic(f"input.transcript-{self.number}", self._event_type), watermark=watermarks.bounded(0)
        )
        fields = {
            name: pl.col(f"field_{position}").cast(dtype)
            for position, (name, dtype) in enumerate(self.compiled.schema.items())
        }
        clause = replace(self.compiled.row_pattern, partition=(), order=(), span=LONG_SPAN)
        matched = stream.Stream(
            match.build_match_recognize(
                read.select(PARTITION_NUMBER, **fields).node, (PARTITION_NUMBER,), clause, unbounded=False
            ),
            None,
        )
        shown = matched.select(
            PARTITION_NUMBER,
            **{f"measure_{position}": pl.col(name) for position, name in enumerate(self.compiled.measures)},
        )
        return stream.Job(
            f"transcript-{self.number}",
            shown.write(Topic(f"analytics.transcript-{self.number}", self._result_type)),
        )

    @property
    def _event_type(self) -> type:
        fields = [
            (f"field_{place}", _python_type(name, dtype))
            for place, (name, dtype) in enumerate(self.compiled.schema.items())
        ]
        return make_dataclass("Event", [(PARTITION_NUMBER, int), *fields], frozen=True)

    @property
    def _result_type(self) -> type:
        measures = [(name, measure_type.dtype) for name, (measure_type, _) in self.compiled.measures.items()]
        fields = [(f"measure_{place}", _python_type(*measure)) for place, measure in enumerate(measures)]
        return make_dataclass("Shown", [(PARTITION_NUMBER, int), *fields], frozen=True)

    def play(self, on: On | MakeBackend, seed: int) -> Iterator[ResultRow]:
        """What the operator shows, however batches are cut."""
        with closing(Script(self.build_job(), on=on, partitions=2)) as script:
            rest, chance, batches = self._interleave_rows(), random.Random(seed), 0  # noqa: S311 - cuts are no secret
            while rest:
                length = chance.randint(1, 3)
                batch, rest = rest[:length], rest[length:]
                script.events(*batch, partition=[row[PARTITION_NUMBER] % 2 for row in batch])
                batches += 1
                if batches == 2:
                    script.restart()
                if rest and chance.random() < 0.5:
                    script.watermark(rest[0]["event_time"])
            script.end()
            panes = script.panes()
        for pane in sorted(
            panes, key=lambda pane: (pane[PARTITION_NUMBER], pane["window_start"], pane["index"])
        ):
            row = self.partitions[pane[PARTITION_NUMBER]][pane["event_time"]]
            yield ResultRow(
                row, tuple(pane[f"measure_{place}"] for place in range(len(self.compiled.measures))), row, row
            )

    def _interleave_rows(self) -> list[Row]:
        """The rows of all partitions side by side, each at its place."""
        rows = [
            {
                PARTITION_NUMBER: partition,
                "event_time": position,
                **{f"field_{column}": value for column, value in enumerate(values)},
            }
            for partition, given in enumerate(self.partitions)
            for position, values in enumerate(given)
        ]
        return sorted(rows, key=lambda row: row["event_time"])


def _python_type(name: str, dtype: pl.DataType) -> Any:
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
