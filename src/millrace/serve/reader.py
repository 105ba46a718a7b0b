"""Follows results and statuses in the log, in a thread of its own."""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import polars as pl

from millrace.errors import MillraceError, OffsetGone, TopicMissing
from millrace.log import Log, LogAddress, Records, open_log, url_of
from millrace.log.aliases import read_aliases
from millrace.log.codecs.codec import decode
from millrace.log.status import parse_statuses, run_of_topic
from millrace.serve.jobs import LATENCY_MS, Jobs
from millrace.serve.view_state import GRACE_MS, ViewState

POLL_SECONDS = 0.1
"""Seconds between two reads of the log."""
DISCOVERY_SECONDS = 1.0
"""Seconds between two searches for missing topics or a missing log."""
FILL_SECONDS = 5.0
"""Seconds that the server waits for the first read before it answers."""
RECORDS_PER_READ = 10_000
"""The most records of one read."""
MAX_PASSES = 3
"""How many times a topic with new records is read before they are published."""

_log = logging.getLogger("millrace.serve")


class ResultReader:
    """Adds new results to views, and new statuses to jobs."""

    def __init__(self, address: LogAddress, views: Sequence[ViewState], jobs: Jobs) -> None:
        """The log need not exist yet."""
        self._address = address
        self.url = url_of(address)
        self.problem: str | None = None
        """Why the log cannot be read at the moment; None if it can."""
        self.undecodable = 0
        """The number of results that could not be decoded."""
        self._views, self._jobs = views, jobs
        self._positions: dict[str, dict[int, int]] = {}
        self._aliases: dict[str, str] = {}
        self._has_looked = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millrace-reader", daemon=True)

    @property
    def missing(self) -> list[str]:
        """Topics of views that the log does not hold yet."""
        wanted = dict.fromkeys(map(self._topic_of, self._views))
        return [name for name in wanted if name not in self._positions]

    def _topic_of(self, view_state: ViewState) -> str:
        """The topic of a view: its own, or the version to which an alias points."""
        return self._aliases.get(view_state.view.topic.name, view_state.view.topic.name)

    def start(self) -> None:
        """Starts reading. It returns when the views are filled, or after `FILL_SECONDS`, so that the first
        viewer sees a map.
        """
        self._thread.start()
        self._has_looked.wait(FILL_SECONDS)

    def stop(self) -> None:
        """Ends the thread, after the current read."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except MillraceError as error:
                self._set_problem(str(error))
            except Exception as error:  # noqa: BLE001 - viewers keep their map; try again
                self._set_problem(f"{type(error).__name__}: {error}", error)
            self._stopping.wait(DISCOVERY_SECONDS)

    def _set_problem(self, problem: str, error: Exception | None = None) -> None:
        """Logs a problem once, and not at every attempt."""
        if problem != self.problem:
            _log.warning("waiting for the log: %s", problem, exc_info=error)
        self.problem = problem
        self._has_looked.set()

    def _follow(self) -> None:
        log = open_log(self._address, create=False)
        try:
            until_discovery = 0.0
            while not self._stopping.is_set():
                if until_discovery <= 0:
                    self._discover_topics(log)
                    until_discovery = DISCOVERY_SECONDS
                self.problem = None
                self._has_looked.set()
                if not self._read_topics(log):
                    self._stopping.wait(POLL_SECONDS)
                    until_discovery -= POLL_SECONDS
        finally:
            log.close()

    def _discover_topics(self, log: Log) -> None:
        """Finds the start positions of new topics, and of new versions behind aliases."""
        self._aliases = read_aliases(log)
        for name in self.missing:
            with suppress(TopicMissing):
                self._positions[name] = self._start_positions(log, name)
        wanted = {self._topic_of(view_state) for view_state in self._views}
        self._positions = {
            name: positions
            for name, positions in self._positions.items()
            if name in wanted or run_of_topic(name) is not None
        }
        for name in log.list_topics():
            if run_of_topic(name) is not None and name not in self._positions:
                self._positions[name] = self._start_positions(log, name)

    def _start_positions(self, log: Log, name: str) -> dict[int, int]:
        """The positions from which to read a new topic. Its views are filled with what it holds."""
        if run_of_topic(name) is not None:
            return _recent_positions(log, name)
        positions = [
            fill_view(log, view_state, name)
            for view_state in self._views
            if self._topic_of(view_state) == name
        ]
        return {
            partition: min(end_offsets[partition] for end_offsets in positions) for partition in positions[0]
        }

    def _read_topics(self, log: Log) -> bool:
        """Reads every topic to its end; returns whether there were new records."""
        news = [self._read_topic(log, name) for name in list(self._positions)]
        return any(news)

    def _read_topic(self, log: Log, name: str) -> bool:
        """Reads a topic to its end in chunks, and publishes only then: viewers do not see half of a window.

        On Kafka, the partitions of one transaction end a few milliseconds apart, so the end offsets are read
        again after the first records.
        """
        positions, has_read = self._positions[name], False
        for _ in range(MAX_PASSES):
            ends = log.end_offsets(name)
            if any(
                end < positions.get(partition, 0) for partition, end in ends.items()
            ):  # the topic was deleted and created again
                self._positions[name] = self._start_positions(log, name)
                return True
            if not self._read_to(log, name, ends):
                break
            has_read = True
        if has_read:
            for view_state in self._views:
                if self._topic_of(view_state) == name:
                    view_state.publish()
        return has_read

    def _read_to(self, log: Log, name: str, ends: Mapping[int, int]) -> bool:
        """Reads chunks of all partitions up to these ends; returns whether there were any."""
        positions, has_read = self._positions[name], False
        while ranges := {
            partition: (positions.get(partition, 0), min(end, positions.get(partition, 0) + RECORDS_PER_READ))
            for partition, end in ends.items()
            if end > positions.get(partition, 0)
        }:
            if self._stopping.is_set():
                return False
            self._dispatch(
                name,
                {
                    partition: _read_range(log, name, partition, *offsets)
                    for partition, offsets in ranges.items()
                },
            )
            positions.update({partition: end for partition, (_, end) in ranges.items()})
            has_read = True
        return has_read

    def _dispatch(self, name: str, records_by_partition: Mapping[int, Records]) -> None:
        """Passes new records to the jobs or views of their topic."""
        if (run := run_of_topic(name)) is not None:
            for records in records_by_partition.values():
                self._jobs.add(run, parse_statuses(records))
            return
        for view_state in self._views:
            if self._topic_of(view_state) == name:
                decoded = [
                    decode(view_state.view.topic, partition, records, panes=True)
                    for partition, records in records_by_partition.items()
                ]
                self.undecodable += sum(len(result.dead) for result in decoded)
                view_state.add(pl.concat([result.rows for result in decoded]))


def _read_range(log: Log, name: str, partition: int, start: int, end: int) -> Records:
    """A range of a partition, as far as retention has not removed it."""
    try:
        return log.read(name, partition, start, end)
    except OffsetGone:
        begin = log.start_offsets(name)[partition]
        return log.read(name, partition, begin, end) if begin < end else Records.empty()


def fill_view(log: Log, view_state: ViewState, name: str | None = None) -> dict[int, int]:
    """Replaces the view's results by those of the log that are still shown. Returns the positions to read on
    from.
    """
    topic = name or view_state.view.topic.name
    begins, ends = log.start_offsets(topic), log.end_offsets(topic)
    frames = [
        frame
        for partition, end in ends.items()
        for frame in reversed(_read_back(log, view_state, topic, partition, (begins[partition], end)))
    ]
    view_state.clear()
    for frame in frames:
        view_state.add(frame)
    view_state.publish()
    return dict(ends)


def _read_back(
    log: Log, view_state: ViewState, topic: str, partition: int, offsets: tuple[int, int]
) -> list[pl.DataFrame]:
    """The results of a partition that may still be shown, in chunks, the last one first.

    Windows fire in the order of their ends. So before an on-time pane there are only on-time and late panes
    of the same or earlier windows, and early panes of windows that end at most one window size later.
    """
    view, frames = view_state.view, []
    begin, end = offsets
    shown_ms = view.every_ms + view.window_ms + GRACE_MS
    newest = 0
    while end > begin:
        start = max(begin, end - RECORDS_PER_READ)
        frame = decode(view.topic, partition, log.read(topic, partition, start, end), panes=True).rows
        frames.append(frame)
        newest = max(
            newest, frame.filter(pl.col("timing") != "early").select(pl.col("window_end").max()).item() or 0
        )
        oldest = frame.filter(pl.col("timing") == "on_time").select(pl.col("window_end").min()).item()
        if oldest is not None and oldest < newest - shown_ms:
            break
        end = start
    return frames


def _recent_positions(log: Log, name: str) -> dict[int, int]:
    """The positions at which the statuses of the last minute begin."""
    positions = {}
    for partition, end in log.end_offsets(name).items():
        start = max(log.start_offsets(name)[partition], end - RECORDS_PER_READ)
        stamps = log.read(name, partition, start, end).timestamps
        positions[partition] = start + int((stamps < stamps[-1] - LATENCY_MS).sum()) if len(stamps) else end
    return positions
