"""One process, no Java: the engine on its own, for tests, notebooks and small machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from millrace import faults
from millrace.config import RunSettings, Settings
from millrace.engine import stage
from millrace.engine.plan import Plan
from millrace.engine.progress import Reach
from millrace.engine.sink import Results, gather
from millrace.engine.source import Piece, route
from millrace.engine.state import SlotState
from millrace.log import Log, open_log
from millrace.runners import feed
from millrace.runners.checkpoint import Checkpoint, States
from millrace.runners.commit import Committer
from millrace.runners.evolution import Wishes
from millrace.runners.folder import StateFolder, hold
from millrace.runners.quarantine import Quarantine, quarantined
from millrace.runners.savepoint import restored
from millrace.runners.stopping import stop_signals
from millrace.stream import Job

POLL = 0.02
"""How long to wait, in seconds, before looking for events again."""


class Engine:
    """All stages and slots of a plan in this process, a batch at a time."""

    def __init__(self, jobs: Sequence[Job], *, slots: int = 1, partitions: Mapping[str, int] | None = None) -> None:
        """`partitions`: how many each topic has, by default as declared."""
        self.plan = Plan.of(jobs, slots=slots)
        self.partitions = {topic.name: topic.partitions for topic in self.plan.topics} | dict(partitions or {})
        self.states: States = {(depth, slot): SlotState() for depth in range(1, self.plan.depth + 1) for slot in range(self.plan.slots)}
        self.reaches: Mapping[str, list[Reach]] = {}
        """How far partitions had come after the last batch."""

    def step(self, pieces: Sequence[Piece], now: int, *, end: bool = False) -> Results:
        """One batch. Partitions without a piece have nothing new; at the `end` nothing more is expected."""
        given = {(piece.topic, piece.partition) for piece in pieces}
        known = [Piece(t, p) for t, n in self.partitions.items() for p in range(n) if (t, p) not in given]
        packets = route(self.plan, [*pieces, *known], now, end=end)
        for depth in range(1, self.plan.depth + 1):
            inboxes: dict[int, list[bytes]] = {slot: [] for slot in range(self.plan.slots)}
            for packet in packets:
                inboxes[packet.slot].append(packet.body)
            packets = []
            for slot, bodies in inboxes.items():
                self.states[depth, slot], sent = stage.step(self.plan, depth, slot, self.states[depth, slot], bodies)
                packets += sent
        results = gather(self.plan, [packet.body for packet in packets])
        self.reaches = results.reaches
        return results

    def restart(self) -> None:
        """All state to bytes and back, as after a stop."""
        for key, state in self.states.items():
            saved = state.changes_since(SlotState())
            self.states[key] = SlotState.open(saved.meta, saved.put.__getitem__)
        stage.forget()


@dataclass(frozen=True)
class Hooks:
    """What a run asks of, and tells, the world around it."""

    stop: Callable[[], bool] = lambda: False
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    report: Callable[[Results], None] = lambda _: None


def run_local(
    jobs: Sequence[Job],
    *,
    settings: Settings,
    until_caught_up: bool = False,
    hooks: Hooks | None = None,
    retry: Sequence[str] = (),
    wishes: Wishes | None = None,
    restore: Path | None = None,
) -> None:
    """Runs jobs over the log until Ctrl-C or SIGTERM, or until they have read what the log holds now.

    Exactly once, like the Spark runner: a batch's range and clock are written down before it runs, its results carry its number, and its
    state is stored last. When stopped, it finishes the batch at hand and raises KeyboardInterrupt. A job whose own code raises is stopped alone;
    `JobQuarantined` says so at the end. Such jobs stay out of later runs until they are named in `retry`. `wishes`: what becomes of the state of jobs that changed;
    `restore`: a savepoint from which a new state folder starts.
    """
    log = open_log(settings)
    engine = Engine(jobs, slots=settings.spark.slots or 1)
    for topic in engine.plan.topics:
        log.ensure(topic)
        engine.partitions[topic.name] = len(log.ends(topic.name))
    with (
        hold(settings.state.dir / settings.run.name) as folder,
        _opened(folder, engine.plan, wishes, restore) as checkpoint,
        quarantined(folder.path, engine.plan, retry) as quarantine,
        closing(Committer(log, engine.plan, run=settings.run.name, state=checkpoint.id, quarantine=quarantine)) as committer,
        closing(log),
        stop_signals() as stopping,
    ):
        committer.check(folder.path, complete=checkpoint.batch - 1, planned=checkpoint.batch - (checkpoint.planned is None))
        engine.states = checkpoint.restore(engine.states)
        engine.plan = quarantine.plan(engine.plan.born(checkpoint.identity.births))
        asked = hooks or Hooks()
        stoppable = replace(asked, stop=lambda: stopping.is_set() or asked.stop())
        run = _Run(log, engine, checkpoint, committer, quarantine, settings.run, stoppable, asked.clock())
        run.batches(until_caught_up=until_caught_up)
    if stopping.is_set():
        raise KeyboardInterrupt
    quarantine.check()


def _opened(folder: StateFolder, plan: Plan, wishes: Wishes | None, restore: Path | None) -> Checkpoint:
    """The memory of the run, perhaps as a savepoint has it."""
    if restore is None:
        return Checkpoint(folder, plan, wishes)
    folder.check_new()
    saved = restored(restore, plan, wishes or Wishes())
    checkpoint = Checkpoint(folder, plan)
    checkpoint.adopt(saved.states, saved.offsets)
    checkpoint.identity = replace(saved.identity, id=checkpoint.id)
    folder.rebind(checkpoint.identity)
    return checkpoint


@dataclass(frozen=True, eq=False)
class _Run:
    log: Log
    engine: Engine
    checkpoint: Checkpoint
    committer: Committer
    quarantine: Quarantine
    settings: RunSettings
    hooks: Hooks
    since: int
    """When it began."""

    def batches(self, *, until_caught_up: bool) -> None:
        """Batch after batch, the one that was begun and not finished first."""
        topics = self.engine.plan.topics
        start = feed.joined(self.log, self.checkpoint.committed or feed.begin(self.log, topics), topics)
        target = feed.advance(self.log, start, now=0, lost=self.settings.lost) if until_caught_up else None
        while not self.hooks.stop():
            pace = feed.Pace(self.engine.reaches.values(), self.settings.max_ahead_ms)
            limit = self.settings.max_events_per_batch
            lost = self.settings.lost
            end = self.checkpoint.planned or feed.advance(self.log, start, now=self.hooks.clock(), limit=limit, pace=pace, lost=lost)
            if self.checkpoint.planned is None and not self._due(start, end):
                if target is not None and not self._waits(start):
                    return
                time.sleep(POLL)
                continue
            self._batch(start, end)
            start = end
            if target is not None and feed.again(self.log, target, self.engine.plan.loops).reached(end) and not self._waits(start):
                return

    def _due(self, start: feed.Offsets, end: feed.Offsets) -> bool:
        """Whether there is anything new, or something waits for the clock."""
        return end.topics != start.topics or (self.engine.plan.ticks and end.clock - start.clock >= self.settings.tick_ms)

    def _waits(self, start: feed.Offsets) -> bool:
        """Whether a partition that never held an event still holds the watermark back, though not for ever."""
        patience = self.engine.plan.patience
        if patience is None or not feed.silent(self.log, start.topics):
            return False
        return self.hooks.clock() - self.since < patience + self.settings.tick_ms

    def _batch(self, start: feed.Offsets, end: feed.Offsets) -> None:
        self.checkpoint.plan_batch(end)
        faults.at("planned")
        before = dict(self.engine.states)
        pieces = feed.pieces(self.log, self.engine.plan, start, end, self.settings.lost)
        results = self.engine.step(pieces, end.clock)
        while results.failures:  # once more, from the state before, without the jobs that failed
            self.quarantine.commit_failures(max(self.checkpoint.batch, self.committer.last + 1), end.clock, results.failures)
            self.engine.states = dict(before)
            self.engine.plan = self.quarantine.plan(self.engine.plan)
            results = self.engine.step(pieces, end.clock)
        faults.at("computed")
        self.committer.commit(self.checkpoint.batch, results)
        self.checkpoint.commit_batch(before, self.engine.states)
        faults.at("stored")
        self.hooks.report(replace(results, quarantined=self.quarantine.reasons))
