"""Many transcripts in one query: each has its lane, and a batch holds one step of every lane.

Starting a query and running a batch cost far more than the few rows of a transcript. A lane is a thread that
waits, whenever its script feeds a batch, until every other lane feeds one or is done; then the batches run as
one. A restart of one is a restart of all, which must change nothing. Since a batch has one clock, only
transcripts that set it alike, at the same steps, run together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millrace.stream import Job
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import Backend, BatchResult, MakeBackend


class LaneFailed(RuntimeError):
    """The query that the lanes share has failed, so this one has no result."""


@dataclass
class LaneTurn:
    """The batch of one lane in this turn, and its result."""

    events: Sequence[SourceEvent] = ()
    now: int = 0
    has_restart: bool = False
    result: BatchResult | None = None


def _shared_clock(turns: Sequence[LaneTurn]) -> int:
    clocks = {turn.now for turn in turns}
    if len(clocks) > 1:
        raise LaneFailed(
            f"a batch has one clock, but these scripts say {', '.join(map(str, sorted(clocks)))}"
        )
    return clocks.pop()


@dataclass
class Lanes:
    """A query that several scripts share; `make` builds it when all lanes are known."""

    make_backend: MakeBackend
    count: int
    _jobs: list[Job] = field(default_factory=list)
    _partitions: dict[str, int] = field(default_factory=dict)
    _turns: dict[int, LaneTurn] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)
    _left: set[int] = field(default_factory=set)
    _backend: Backend | None = None
    _failed: Exception | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def make_lane(self, number: int) -> MakeBackend:
        """The backend for the script of a lane."""

        def making(jobs: Sequence[Job], partitions: Mapping[str, int]) -> Backend:
            with self._changed:
                self._jobs += jobs
                self._partitions |= partitions
            topics = {output.topic.name for job in jobs for output in job.outputs}
            return LaneBackend(self, number, topics, {job.name for job in jobs})

        return making

    def take_turn(self, number: int, turn: LaneTurn) -> BatchResult:
        """Waits for the other lanes; the last one to arrive runs the batch of all."""
        with self._changed:
            self._turns[number] = turn
            self._waiting.add(number)
            self._run_if_all_wait()
            self._changed.wait_for(lambda: turn.result is not None or self._failed is not None)
            if turn.result is None:
                raise LaneFailed(str(self._failed)) from self._failed
            return turn.result

    def leave(self, number: int) -> None:
        """Removes a lane that is done or never began, so that no other waits for it."""
        with self._changed:
            if number not in self._left:
                self._left.add(number)
                self._run_if_all_wait()

    def _run_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) + len(self._left) < self.count or self._failed is not None:
            return
        turns = [self._turns[number] for number in sorted(self._waiting)]
        try:
            if self._backend is None:
                self._backend = self.make_backend(self._jobs, self._partitions)
            if any(turn.has_restart for turn in turns):
                self._backend.restart()
            result = self._backend.feed(
                [event for turn in turns for event in turn.events], _shared_clock(turns)
            )
            for turn in turns:
                turn.result = result
        except Exception as error:  # noqa: BLE001 - each lane is told
            self._failed = error
        self._waiting.clear()
        self._changed.notify_all()

    def close(self) -> None:
        """Closes the query."""
        if self._backend is not None:
            self._backend.close()


@dataclass
class LaneBackend:
    """One script's part of a shared query."""

    shared: Lanes
    number: int
    topics: set[str]
    jobs: set[str]
    _has_restart: bool = False

    def feed(self, batch: Sequence[SourceEvent], now: int, *, end: bool = False) -> BatchResult:
        """A batch, together with those of all lanes."""
        if end:
            raise LaneFailed("a script that ends the stream cannot share a query")
        result = self.shared.take_turn(self.number, LaneTurn(batch, now, self._has_restart))
        self._has_restart = False
        written = {topic: rows for topic, rows in result.written.items() if topic in self.topics}
        return BatchResult(written, {job: rows for job, rows in result.late.items() if job in self.jobs})

    def restart(self) -> None:
        """Restarts the query before the next batch."""
        self._has_restart = True

    def close(self) -> None:
        """Leaves the shared query."""
        self.shared.leave(self.number)


def run_lanes(
    make: MakeBackend, runs: Sequence[Callable[[MakeBackend], str | None]]
) -> list[str | LaneFailed | None]:
    """Runs each in its lane. A result is what the run returned, or the failure of the shared query."""
    shared = Lanes(make, len(runs))
    results: list[str | LaneFailed | None] = [None] * len(runs)

    def run_lane(number: int) -> None:
        try:
            results[number] = runs[number](shared.make_lane(number))
        except LaneFailed as failure:
            results[number] = failure
        finally:
            shared.leave(number)

    threads = [threading.Thread(target=run_lane, args=(number,), daemon=True) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    return results
