"""The job of a pattern transcript.

Its events come in batches cut at random, on two partitions, with a restart.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import graph, patterns, stream, watermarks
from millrace.durations import BEFORE_ALL
from millrace.graph.build import match as sequencing
from millrace.testing.model.values import Row
from millrace.testing.script import MakeBackend, On, Script
from millrace.testing.transcripts.words import TranscriptError, to_canonical_text
from millrace.topics import Topic

if TYPE_CHECKING:
    from millrace.testing.transcripts.patterns import PatternTranscript, TakenEvents

TIME, ID = "t", "id"
_ID_TEXT, _SINGLE_KEY = "said_id", "everyone"
"""Columns besides the events' own: the id as text, and the key of transcripts that have none."""

ScriptStep = tuple[str, Any]
"""`events` that arrive together, a `watermark`, or a `restart`."""


@dataclass(frozen=True)
class PatternTranscriptJob:
    """A transcript's job; `number` tells jobs apart that run together."""

    transcript: PatternTranscript
    number: int = 0

    def build_job(self) -> stream.Job:
        """Matches to one topic, timeouts to another: the ids that each step took."""
        transcript, topics = (
            self.transcript,
            [
                Topic(f"{kind}.transcript-{self.number}", self._result_type)
                for kind in ("analytics", "timeouts")
            ],
        )
        read = stream.read(
            Topic(f"input.transcript-{self.number}", self._event_type), watermark=watermarks.bounded(0)
        )
        fields = {
            name: pl.col(f"field_{position}").cast(dtype)
            for position, (name, dtype) in enumerate(transcript.schema.items())
        }
        rows = read.select(_ID_TEXT, **fields, **({} if transcript.key else {_SINGLE_KEY: pl.lit(0)}))
        select = {
            f"step_{position}": patterns.collect(step, _ID_TEXT) for position, step in enumerate(self.steps)
        }
        match = sequencing.build_match(
            rows.node, (transcript.key or _SINGLE_KEY,), transcript.pattern, select, unbounded=False
        )
        found = stream.Stream(match, None)
        results = [result.select(*select) for result in (found, found.timeouts())]
        return stream.Job(
            f"transcript-{self.number}",
            *(result.write(topic) for result, topic in zip(results, topics, strict=True)),
        )

    @property
    def steps(self) -> list[str]:
        """The steps that take events."""
        return [step.name for step in self.transcript.pattern.steps if not step.is_negative]

    @property
    def _event_type(self) -> type:
        kinds: dict[Any, type] = {pl.Int64: int, pl.Float64: float, pl.String: str, pl.Boolean: bool}
        for name in self.transcript.schema:
            if name in graph.TIME_COLUMNS or name.startswith("_") or name in (_ID_TEXT, _SINGLE_KEY):
                raise TranscriptError(
                    f"events have a field `{name}`, a name that rows of streams use for themselves; rename it"
                )
        fields = [
            (f"field_{place}", kinds[dtype.base_type()] | None)
            for place, dtype in enumerate(self.transcript.schema.values())
        ]
        return make_dataclass("Event", [(_ID_TEXT, str), *fields], frozen=True)

    @property
    def _result_type(self) -> type:
        return make_dataclass(
            "Taken", [(f"step_{place}", list[str]) for place in range(len(self.steps))], frozen=True
        )

    def play(
        self, on: On | MakeBackend, seed: int
    ) -> tuple[list[TakenEvents], list[tuple[int, TakenEvents]]]:
        """The matches and timeouts that the operator shows, however batches are cut."""
        script = Script(self.build_job(), on=on, partitions=2)
        try:
            for kind, payload in self._cut_into_steps(random.Random(seed)):  # noqa: S311 - cuts are no secret
                match kind:
                    case "events":
                        script.events(
                            *map(self._to_row, payload),
                            partition=[self._partition_of(event) for event in payload],
                        )
                    case "watermark":
                        script.watermark(payload)
                    case _:
                        script.restart()
            script.end()
            matches, late = (
                script.panes(f"{kind}.transcript-{self.number}") for kind in ("analytics", "timeouts")
            )
        finally:
            script.close()
        return [self._to_taken_events(pane) for pane in matches], [
            (pane["window_end"], self._to_taken_events(pane)) for pane in late
        ]

    def _cut_into_steps(self, chance: random.Random) -> Iterator[ScriptStep]:
        """The events in order of arrival, cut at random.

        At some cuts the watermark moves as far as later events allow; one restart.
        """
        batch: list[Row] = []
        batches = 0
        for place, event in enumerate(self.transcript.events):
            if ID in event:
                batch.append(event)
            if batch and (ID not in event or chance.random() < 0.3):
                yield "events", batch
                batch, batches = [], batches + 1
                if batches == 2:
                    yield "restart", True
                if chance.random() < 0.5 and (
                    rest := [time for time in self._times_unless_late[place + 1 :] if time is not None]
                ):
                    yield "watermark", min(rest)
            if ID not in event:
                yield "watermark", event["advance_to"]
        if batch:
            yield "events", batch

    @property
    def _times_unless_late(self) -> list[int | None]:
        """The time of each event; None for one that will be late."""
        watermark = BEFORE_ALL
        times: list[int | None] = []
        for event in self.transcript.events:
            watermark = watermark if ID in event else max(watermark, event["advance_to"])
            times.append(event[TIME] if ID in event and event[TIME] >= watermark else None)
        return times

    def _to_row(self, event: Row) -> Row:
        fields = {f"field_{place}": event.get(name) for place, name in enumerate(self.transcript.schema)}
        return {_ID_TEXT: to_canonical_text(event[ID]), **fields, "event_time": event[TIME]}

    def _partition_of(self, event: Row) -> int:
        """The partition of an event.

        Rows of a key share one, since their arrival orders those of equal time.
        """
        key = self.transcript.key
        return 0 if key is None else sum(to_canonical_text(event.get(key)).encode()) % 2

    def _to_taken_events(self, pane: Row) -> TakenEvents:
        return tuple((step, id) for place, step in enumerate(self.steps) for id in pane[f"step_{place}"])
