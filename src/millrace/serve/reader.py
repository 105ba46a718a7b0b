"""Follows the results and statuses in the log, in a thread of its own."""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import polars as pl

from millrace.errors import MillraceError, OffsetGone, TopicMissing
from millrace.log import Log, Records, Where, open_log, url_of
from millrace.log.aliases import aliases
from millrace.log.codecs.codec import decode
from millrace.log.status import read_status, run_of
from millrace.serve.jobs import LATENCY, Jobs
from millrace.serve.view_state import GRACE, Cells

POLL = 0.1
"""Seconds between two looks into the log."""
LOOK_AROUND = 1.0
"""Seconds between two looks for topics, or for a log, that were not there."""
FILL = 5.0
"""Seconds that the server waits for the first look before it answers."""
PIECE = 10_000
"""The most records that are read at once."""
LOOKS = 3
"""How many times a topic with news is looked at before what it brought is published."""

_log = logging.getLogger("millrace.serve")


class Reader:
    """Applies results to views and takes statuses, as they come."""

    def __init__(self, log: Where, views: Sequence[Cells], jobs: Jobs) -> None:
        """`log` need not exist yet."""
        self._where = log
        self.url = url_of(log)
        self.problem: str | None = None
        """Why nothing can be read at the moment."""
        self.dead = 0
        """How many results could not be decoded."""
        self._views, self._jobs = views, jobs
        self._places: dict[str, dict[int, int]] = {}
        self._aliases: dict[str, str] = {}
        self._looked = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millrace-reader", daemon=True)

    @property
    def missing(self) -> list[str]:
        """Topics of views that the log does not hold yet."""
        wanted = dict.fromkeys(map(self._topic, self._views))
        return [name for name in wanted if name not in self._places]

    def _topic(self, cells: Cells) -> str:
        """The topic that a view is read from: its own, or the version that was put in its place."""
        return self._aliases.get(cells.view.topic.name, cells.view.topic.name)

    def start(self) -> None:
        """Begins to read. Views are filled when it returns, unless that takes very long: who asks at once is not shown an empty map."""
        self._thread.start()
        self._looked.wait(FILL)

    def stop(self) -> None:
        """Ends the thread; at once, but for the piece at hand."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except MillraceError as error:
                self._say(str(error))
            except Exception as error:  # noqa: BLE001 - viewers keep what they see, and reading is tried again
                self._say(f"{type(error).__name__}: {error}", error)
            self._stopping.wait(LOOK_AROUND)

    def _say(self, problem: str, error: Exception | None = None) -> None:
        """Each problem once, not every time that it is met again."""
        if problem != self.problem:
            _log.warning("waiting for the log: %s", problem, exc_info=error)
        self.problem = problem
        self._looked.set()

    def _follow(self) -> None:
        log = open_log(self._where, create=False)
        try:
            waits = 0.0
            while not self._stopping.is_set():
                if waits <= 0:
                    self._look_around(log)
                    waits = LOOK_AROUND
                self.problem = None
                self._looked.set()
                if not self._read_on(log):
                    self._stopping.wait(POLL)
                    waits -= POLL
        finally:
            log.close()

    def _look_around(self, log: Log) -> None:
        """Finds the places from which to read topics that are new, versions that have taken the place of others among them."""
        self._aliases = aliases(log)
        for name in self.missing:
            with suppress(TopicMissing):
                self._places[name] = self._start_of(log, name)
        read = {self._topic(cells) for cells in self._views}
        self._places = {
            name: places for name, places in self._places.items() if name in read or run_of(name) is not None
        }
        for name in log.list():
            if run_of(name) is not None and name not in self._places:
                self._places[name] = self._start_of(log, name)

    def _start_of(self, log: Log, name: str) -> dict[int, int]:
        """Where to read on in a topic that is read for the first time; its views show what it holds, and nothing else."""
        if run_of(name) is not None:
            return _recent(log, name)
        filled = [fill(log, cells, name) for cells in self._views if self._topic(cells) == name]
        return {partition: min(ends[partition] for ends in filled) for partition in filled[0]}

    def _read_on(self, log: Log) -> bool:
        """Reads every topic to its end; whether there was anything new."""
        news = [self._read_topic(log, name) for name in list(self._places)]
        return any(news)

    def _read_topic(self, log: Log, name: str) -> bool:
        """Reads a topic to its end, in pieces, and publishes only then: viewers do not see half of a window.

        On Kafka the partitions of one transaction end a few milliseconds apart. So the ends are looked at again after the first news.
        """
        at, begun = self._places[name], False
        for _ in range(LOOKS):
            ends = log.ends(name)
            if any(end < at.get(p, 0) for p, end in ends.items()):  # the topic was made anew
                self._places[name] = self._start_of(log, name)
                return True
            if not self._read_to(log, name, ends):
                break
            begun = True
        if begun:
            for cells in self._views:
                if self._topic(cells) == name:
                    cells.publish()
        return begun

    def _read_to(self, log: Log, name: str, ends: Mapping[int, int]) -> bool:
        """Takes pieces of all partitions until these ends are reached; whether there were any."""
        at, begun = self._places[name], False
        while news := {
            p: (at.get(p, 0), min(end, at.get(p, 0) + PIECE)) for p, end in ends.items() if end > at.get(p, 0)
        }:
            if self._stopping.is_set():
                return False
            self._take(
                name, {partition: _read(log, name, partition, *place) for partition, place in news.items()}
            )
            at.update({p: end for p, (_, end) in news.items()})
            begun = True
        return begun

    def _take(self, name: str, pieces: Mapping[int, Records]) -> None:
        """Passes on what is new in a topic."""
        if (run := run_of(name)) is not None:
            for records in pieces.values():
                self._jobs.take(run, read_status(records))
            return
        for cells in self._views:
            if self._topic(cells) == name:
                decoded = [
                    decode(cells.view.topic, partition, records, panes=True)
                    for partition, records in pieces.items()
                ]
                self.dead += sum(len(each.dead) for each in decoded)
                cells.take(pl.concat([each.rows for each in decoded]))


def _read(log: Log, name: str, partition: int, start: int, end: int) -> Records:
    """A range of a partition, as far as it is still there."""
    try:
        return log.read(name, partition, start, end)
    except OffsetGone:
        begin = log.begins(name)[partition]
        return log.read(name, partition, begin, end) if begin < end else Records.none()


def fill(log: Log, cells: Cells, name: str | None = None) -> dict[int, int]:
    """Reads back as far as results are still shown, and no further; where to go on in each partition. What the view had before is forgotten."""
    topic = name or cells.view.topic.name
    begins, ends = log.begins(topic), log.ends(topic)
    pieces = [
        piece
        for p, end in ends.items()
        for piece in reversed(_read_back(log, cells, topic, p, (begins[p], end)))
    ]
    cells.clear()
    for piece in pieces:
        cells.take(piece)
    cells.publish()
    return dict(ends)


def _read_back(
    log: Log, cells: Cells, topic: str, partition: int, held: tuple[int, int]
) -> list[pl.DataFrame]:
    """The results of a partition that may still be shown, in pieces, the last one first.

    Windows fire in the order of their ends. So before an on-time pane there are only on-time and late panes of windows no later than its own, and
    early panes of windows that end at most a window later.
    """
    view, pieces = cells.view, []
    begin, end = held
    shown = view.every_ms + view.window_ms + GRACE
    newest = 0
    while end > begin:
        start = max(begin, end - PIECE)
        piece = decode(view.topic, partition, log.read(topic, partition, start, end), panes=True).rows
        pieces.append(piece)
        newest = max(
            newest, piece.filter(pl.col("timing") != "early").select(pl.col("window_end").max()).item() or 0
        )
        oldest = piece.filter(pl.col("timing") == "on_time").select(pl.col("window_end").min()).item()
        if oldest is not None and oldest < newest - shown:
            break
        end = start
    return pieces


def _recent(log: Log, name: str) -> dict[int, int]:
    """Where the statuses of the last minute begin."""
    found = {}
    for partition, end in log.ends(name).items():
        start = max(log.begins(name)[partition], end - PIECE)
        stamps = log.read(name, partition, start, end).timestamps
        found[partition] = start + int((stamps < stamps[-1] - LATENCY).sum()) if len(stamps) else end
    return found
