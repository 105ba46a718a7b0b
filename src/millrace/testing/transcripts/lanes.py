"""Many transcripts in one query: each in a lane of its own, all lanes in step, so that a batch is a step of every one of them.

Starting a query and running a batch cost far more than the few rows of a transcript. A lane is a thread that waits, whenever its script
feeds a batch, until every other lane feeds one or is done; then the batches run as one. A restart of one is a restart of all, which must
change nothing. Since a batch has one clock, only transcripts that set it alike, at the same steps, run together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millrace.stream import Job
from millrace.testing.model.model import Event
from millrace.testing.script import Backend, Fed, Making


class LaneFailed(RuntimeError):
    """The query that the lanes share has failed, so nothing is known of this one."""


@dataclass
class _Turn:
    """What one lane has to say in this turn, and what came of it."""

    events: Sequence[Event] = ()
    now: int = 0
    restart: bool = False
    fed: Fed | None = None


def _clock(turns: Sequence[_Turn]) -> int:
    clocks = {turn.now for turn in turns}
    if len(clocks) > 1:
        raise LaneFailed(
            f"a batch has one clock, but these scripts say {', '.join(map(str, sorted(clocks)))}"
        )
    return clocks.pop()


@dataclass
class Lanes:
    """A query that several scripts share; `make` is asked for it once all lanes are known."""

    make: Making
    count: int
    _jobs: list[Job] = field(default_factory=list)
    _partitions: dict[str, int] = field(default_factory=dict)
    _turns: dict[int, _Turn] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)
    _done: set[int] = field(default_factory=set)
    _backend: Backend | None = None
    _failed: Exception | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def lane(self, number: int) -> Making:
        """What the script of a lane runs on."""

        def making(jobs: Sequence[Job], partitions: Mapping[str, int]) -> Backend:
            with self._changed:
                self._jobs += jobs
                self._partitions |= partitions
            topics = {output.topic.name for job in jobs for output in job.outputs}
            return Lane(self, number, topics, {job.name for job in jobs})

        return making

    def take_turn(self, number: int, turn: _Turn) -> Fed:
        """Waits for the others; the last to come runs the batch of all."""
        with self._changed:
            self._turns[number] = turn
            self._waiting.add(number)
            self._run_if_all_wait()
            self._changed.wait_for(lambda: turn.fed is not None or self._failed is not None)
            if turn.fed is None:
                raise LaneFailed(str(self._failed)) from self._failed
            return turn.fed

    def leave(self, number: int) -> None:
        """A lane that is done, or never began, is waited for no longer."""
        with self._changed:
            if number not in self._done:
                self._done.add(number)
                self._run_if_all_wait()

    def _run_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) + len(self._done) < self.count or self._failed is not None:
            return
        turns = [self._turns[number] for number in sorted(self._waiting)]
        try:
            if self._backend is None:
                self._backend = self.make(self._jobs, self._partitions)
            if any(turn.restart for turn in turns):
                self._backend.restart()
            fed = self._backend.feed([event for turn in turns for event in turn.events], _clock(turns))
            for turn in turns:
                turn.fed = fed
        except Exception as error:  # noqa: BLE001 - each lane is told
            self._failed = error
        self._waiting.clear()
        self._changed.notify_all()

    def close(self) -> None:
        """Lets go of the query."""
        if self._backend is not None:
            self._backend.close()


@dataclass
class Lane:
    """One script's part of a shared query."""

    shared: Lanes
    number: int
    topics: set[str]
    jobs: set[str]
    _restart: bool = False

    def feed(self, batch: Sequence[Event], now: int, *, end: bool = False) -> Fed:
        """A batch, together with those of all lanes."""
        if end:
            raise LaneFailed("a script that ends the stream cannot share a query")
        fed = self.shared.take_turn(self.number, _Turn(batch, now, self._restart))
        self._restart = False
        written = {topic: rows for topic, rows in fed.written.items() if topic in self.topics}
        return Fed(written, {job: rows for job, rows in fed.late.items() if job in self.jobs})

    def restart(self) -> None:
        """Before the next batch, everything is started anew."""
        self._restart = True

    def close(self) -> None:
        """The lane is done."""
        self.shared.leave(self.number)


def run_together(
    make: Making, runs: Sequence[Callable[[Making], str | None]]
) -> list[str | LaneFailed | None]:
    """Runs each on a lane of its own; what each says, or that the query they shared has failed."""
    shared = Lanes(make, len(runs))
    answers: list[str | LaneFailed | None] = [None] * len(runs)

    def go(number: int) -> None:
        try:
            answers[number] = runs[number](shared.lane(number))
        except LaneFailed as failed:
            answers[number] = failed
        finally:
            shared.leave(number)

    threads = [threading.Thread(target=go, args=(number,), daemon=True) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    return answers
