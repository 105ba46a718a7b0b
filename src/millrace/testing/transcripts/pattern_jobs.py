"""The job that a pattern transcript speaks of, and its events through it: in batches cut anywhere, on two partitions, with restarts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import graph, patterns, stream, watermarks
from millrace.graph.build import match as sequencing
from millrace.testing.model.values import Row
from millrace.testing.script import Making, On, Script
from millrace.testing.transcripts.words import Wrong, plain
from millrace.topics import Topic

if TYPE_CHECKING:
    from millrace.testing.transcripts.patterns import PatternTranscript, Taken

TIME, ID = "t", "id"
_SAID, _EVERYONE = "said_id", "everyone"
"""Columns besides the events' own: the id as text, and the key of transcripts that have none."""

Step = tuple[str, Any]
"""`events` that arrive together, a `watermark`, or a `restart`."""


@dataclass(frozen=True)
class PatternSubject:
    """A transcript's job; `number` keeps those apart that run together."""

    transcript: PatternTranscript
    number: int = 0

    def job(self) -> stream.Job:
        """Matches to one topic, timeouts to another: the ids that each step took."""
        said, topics = (
            self.transcript,
            [Topic(f"{kind}.transcript-{self.number}", self._result) for kind in ("analytics", "timeouts")],
        )
        read = stream.read(
            Topic(f"input.transcript-{self.number}", self._event), watermark=watermarks.bounded(0)
        )
        fields = {
            name: pl.col(f"field_{place}").cast(dtype)
            for place, (name, dtype) in enumerate(said.schema.items())
        }
        rows = read.select(_SAID, **fields, **({} if said.key else {_EVERYONE: pl.lit(0)}))
        select = {f"step_{place}": patterns.collect(step, _SAID) for place, step in enumerate(self.steps)}
        match = sequencing.match(rows.node, (said.key or _EVERYONE,), said.pattern, select, endless=False)
        found = stream.Stream(match, None)
        ways = [made.select(*select) for made in (found, found.timeouts())]
        return stream.Job(
            f"transcript-{self.number}", *(way.write(topic) for way, topic in zip(ways, topics, strict=True))
        )

    @property
    def steps(self) -> list[str]:
        """The steps that take events."""
        return [step.name for step in self.transcript.pattern.steps if not step.negative]

    @property
    def _event(self) -> type:
        kinds: dict[Any, type] = {pl.Int64: int, pl.Float64: float, pl.String: str, pl.Boolean: bool}
        for name in self.transcript.schema:
            if name in graph.TIMES or name.startswith("_") or name in (_SAID, _EVERYONE):
                raise Wrong(
                    f"events have a field `{name}`, a name that rows of streams use for themselves; rename it"
                )
        fields = [
            (f"field_{place}", kinds[dtype.base_type()] | None)
            for place, dtype in enumerate(self.transcript.schema.values())
        ]
        return make_dataclass("Event", [(_SAID, str), *fields], frozen=True)

    @property
    def _result(self) -> type:
        return make_dataclass(
            "Taken", [(f"step_{place}", list[str]) for place in range(len(self.steps))], frozen=True
        )

    def play(self, on: On | Making, seed: int) -> tuple[list[Taken], list[tuple[int, Taken]]]:
        """The matches and timeouts that the operator shows, however batches are cut."""
        script = Script(self.job(), on=on, partitions=2)
        try:
            for kind, what in self._steps(random.Random(seed)):  # noqa: S311 - cuts are no secret
                match kind:
                    case "events":
                        script.events(
                            *map(self._row, what), partition=[self._partition(event) for event in what]
                        )
                    case "watermark":
                        script.watermark(what)
                    case _:
                        script.restart()
            script.end()
            matches, late = (
                script.panes(f"{kind}.transcript-{self.number}") for kind in ("analytics", "timeouts")
            )
        finally:
            script.close()
        return [self._taken(pane) for pane in matches], [
            (pane["window_end"], self._taken(pane)) for pane in late
        ]

    def _steps(self, chance: random.Random) -> Iterator[Step]:
        """The events in order of arrival, cut anywhere; at some cuts time passes as far as the rest allows; one restart."""
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
                    rest := [time for time in self._in_time[place + 1 :] if time is not None]
                ):
                    yield "watermark", min(rest)
            if ID not in event:
                yield "watermark", event["advance_to"]
        if batch:
            yield "events", batch

    @property
    def _in_time(self) -> list[int | None]:
        """For each event its time, unless it will be late."""
        passed = -(2**62)
        times: list[int | None] = []
        for event in self.transcript.events:
            passed = passed if ID in event else max(passed, event["advance_to"])
            times.append(event[TIME] if ID in event and event[TIME] >= passed else None)
        return times

    def _row(self, event: Row) -> Row:
        fields = {f"field_{place}": event.get(name) for place, name in enumerate(self.transcript.schema)}
        return {_SAID: plain(event[ID]), **fields, "event_time": event[TIME]}

    def _partition(self, event: Row) -> int:
        """Rows of a key stay together, since it is their arrival that orders those of equal time."""
        key = self.transcript.key
        return 0 if key is None else sum(plain(event.get(key)).encode()) % 2

    def _taken(self, pane: Row) -> Taken:
        return tuple((step, id) for place, step in enumerate(self.steps) for id in pane[f"step_{place}"])
