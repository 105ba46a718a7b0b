"""Appends events to a log in the background, while faults are injected into the runs that read it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from bench import events
from bench.city_flow import BackgroundThread, run_in_background
from millrace.log import Log, OutgoingRecords
from millrace.log.codecs.codec import encode
from millrace.transit.topics import POSITIONS

BLOCK = 300
"""Seconds of events that are made at a time."""
UNREADABLE = OutgoingRecords(
    pa.array([b"\xff not an event", None], pa.binary()), pa.array([b"a", b"b"], pa.binary())
)


class EventFeeder(BackgroundThread):
    """Appends events to the log, some of them unreadable, until `finish` is called."""

    def __init__(self, log: Log, *, vehicles: int, seed: int, pace: float) -> None:
        super().__init__()
        self._log, self._vehicles, self._seed, self._pace = log, vehicles, seed, pace

    def do_work(self) -> None:
        """Appends one second of events every `pace` seconds."""
        for number, part in enumerate(self._make_batches()):
            if self.stop_requested.wait(self._pace):
                return
            self._log.append(POSITIONS.name, encode(POSITIONS, part))
            if number % 5 == 0:
                self._log.append(POSITIONS.name, UNREADABLE)

    def _make_batches(self) -> Iterator[pl.DataFrame]:
        for block in itertools.count():
            start, seed = events.START + block * BLOCK * 1000, self._seed + block
            rows = events.make_positions(BLOCK, vehicles=self._vehicles, seed=seed, start=start)
            yield from rows.iter_slices(self._vehicles)

    def finish(self) -> None:
        """Stops, and returns when the last event is in the log.
        Raises the error of the thread, if there was one.
        """
        self.stop_requested.set()
        self.join()
        if self.problem is not None:
            raise self.problem


@contextlib.contextmanager
def feed_events(log: Log, *, vehicles: int, seed: int, pace: float) -> Iterator[EventFeeder]:
    """A feeder that appends while the block runs.
    Its error, if there was one, is raised at the end of the block.
    """
    feeder = EventFeeder(log, vehicles=vehicles, seed=seed, pace=pace)
    with run_in_background(feeder):
        yield feeder
