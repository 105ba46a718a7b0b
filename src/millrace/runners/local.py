"""One process, no Java: the engine on its own, for tests, notebooks and small machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from millrace.config import RunSettings, Settings
from millrace.engine import stage
from millrace.engine.isolation import AT_WORK
from millrace.engine.plan import Plan
from millrace.engine.progress import Reach
from millrace.engine.sink import Results, gather
from millrace.engine.source import Piece, route
from millrace.engine.state import SlotState
from millrace.log import Log, fault_points, open_log
from millrace.log.owners import Owner, claim
from millrace.runners import batches
from millrace.runners.batch_clock import BatchClock, wall_clock
from millrace.runners.batches import Offsets
from millrace.runners.commit import Committer
from millrace.runners.signals import stop_signals
from millrace.runners.state.checkpoint import Checkpoint, States
from millrace.runners.state.evolution import Wishes
from millrace.runners.state.folder import StateFolder, hold
from millrace.runners.state.quarantine import Quarantine, quarantined
from millrace.runners.state.savepoint import load, restored
from millrace.stream import Job

POLL = 0.02
"""How long to wait, in seconds, before looking for events again."""


class Engine:
    """All stages and slots of a plan in this process, a batch at a time."""

    def __init__(
        self, jobs: Sequence[Job], *, slots: int = 1, partitions: Mapping[str, int] | None = None
    ) -> None:
        """`partitions`: how many each topic has, by default as declared."""
        self.plan = Plan.of(jobs, slots=slots)
        self.partitions = {topic.name: topic.partitions for topic in self.plan.topics} | dict(
            partitions or {}
        )
        self.states: States = {
            (depth, slot): SlotState()
            for depth in range(1, self.plan.depth + 1)
            for slot in range(self.plan.slots)
        }
        self.reaches: Mapping[str, list[Reach]] = {}
        """How far partitions had come after the last batch."""

    def step(self, pieces: Sequence[Piece], now: int, *, end: bool = False, bounded: bool = False) -> Results:
        """One batch. Partitions without a piece have nothing new; at the `end` nothing more is expected.

        `bounded`: partitions that have never held a record do not hold the watermark back.
        """
        given = {(piece.topic, piece.partition) for piece in pieces}
        known = [Piece(t, p) for t, n in self.partitions.items() for p in range(n) if (t, p) not in given]
        packets = route(self.plan, [*pieces, *known], now, end=end, bounded=bounded)
        for depth in range(1, self.plan.depth + 1):
            inboxes: dict[int, list[bytes]] = {slot: [] for slot in range(self.plan.slots)}
            for packet in packets:
                inboxes[packet.slot].append(packet.body)
            packets = []
            for slot, bodies in inboxes.items():
                self.states[depth, slot], sent = stage.step(
                    self.plan, depth, slot, self.states[depth, slot], bodies
                )
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
    clock: Callable[[], int] = wall_clock
    elapsed: Callable[[], int] | None = None
    """Time that passes without jumps, in milliseconds; by default the machine's, where `clock` is."""
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
    take_over: bool = False,
) -> None:
    """Runs jobs over the log until Ctrl-C or SIGTERM, or until they have read what the log holds now.

    Exactly once, like the Spark runner: a batch's range and clock are written down before it runs, its results carry its number, and its
    state is stored last. When stopped, it finishes the batch at hand and raises KeyboardInterrupt. A job whose own code raises is stopped alone;
    `JobQuarantined` says so at the end. Such jobs stay out of later runs until they are named in `retry`. `wishes`: what becomes of the state of jobs that changed;
    `restore`: a savepoint from which a new state folder starts; `take_over`: topics that another state writes become this one's.
    """
    log = open_log(settings)
    engine = Engine(jobs, slots=settings.spark.slots or 1)
    for topic in engine.plan.topics:
        log.ensure(topic)
        engine.partitions[topic.name] = len(log.ends(topic.name))
    with (
        hold(settings.state.dir / settings.run.name) as folder,
        _opened(folder, engine.plan, wishes, restore) as checkpoint,
        _claimed(log, engine.plan, checkpoint, folder, settings.run.name, take_over=take_over),
        quarantined(folder.path, engine.plan, retry) as quarantine,
        closing(
            Committer(log, engine.plan, run=settings.run.name, state=checkpoint.id, quarantine=quarantine)
        ) as committer,
        closing(log),
        stop_signals(_at_work) as stopping,
    ):
        committer.check(
            folder.path,
            complete=checkpoint.batch - 1,
            planned=checkpoint.batch - (checkpoint.planned is None),
        )
        committer.check_left()
        engine.states = checkpoint.restore(engine.states)
        engine.plan = quarantine.plan(engine.plan.born(checkpoint.identity.births))
        asked = hooks or Hooks()
        stoppable = replace(asked, stop=lambda: stopping.is_set() or asked.stop())
        clock = BatchClock(asked.clock, asked.elapsed)
        run = _Run(
            log, engine, checkpoint, committer, quarantine, settings.run, stoppable, clock, asked.clock()
        )
        run.run_batches(until_caught_up=until_caught_up)
    if stopping.is_set():
        raise KeyboardInterrupt
    quarantine.check()


def _at_work() -> str:
    return f"job {', '.join(AT_WORK.jobs)}" if AT_WORK.jobs else "the run"


@contextmanager
def _claimed(
    log: Log, plan: Plan, checkpoint: Checkpoint, folder: StateFolder, run: str, *, take_over: bool
) -> Iterator[None]:
    """With the output topics as this state's own."""
    names, heir_of = [topic.name for topic in plan.outputs], checkpoint.identity.heir_of
    claim(
        log, names, Owner(checkpoint.id, run), folder=str(folder.path), take_over=take_over, heir_of=heir_of
    )
    yield


def _opened(folder: StateFolder, plan: Plan, wishes: Wishes | None, restore: Path | None) -> Checkpoint:
    """The memory of the run, perhaps as a savepoint has it."""
    if restore is None:
        folder.check_restored()
        return Checkpoint(folder, plan, wishes)
    folder.check_new()
    saved = restored(restore, plan, wishes or Wishes())
    with folder.restoring():
        checkpoint = Checkpoint(folder, plan)
        fault_points.at("restoring")
        checkpoint.adopt(saved.states, saved.offsets)
        checkpoint.identity = replace(saved.identity, id=checkpoint.id, heir_of=load(restore).identity.id)
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
    clock: BatchClock
    since: int
    """When it began."""

    def run_batches(self, *, until_caught_up: bool) -> None:
        """Batch after batch, the one that was begun and not finished first."""
        topics = self.engine.plan.topics
        start = batches.joined(
            self.log,
            self.checkpoint.committed or batches.begin(self.log, topics),
            [topic.name for topic in topics],
        )
        target = batches.advance(self.log, start, now=0, lost=self.settings.lost) if until_caught_up else None
        while not self.hooks.stop():
            pace = batches.Pace(self.engine.reaches.values(), self.settings.max_ahead_ms)
            limit = self.settings.max_events_per_batch
            lost = self.settings.lost
            end = self.checkpoint.planned or batches.advance(
                self.log,
                start,
                now=self.clock.after(start.clock),
                limit=limit,
                pace=pace,
                lost=lost,
                bounded=until_caught_up,
            )
            if self.checkpoint.planned is None and not self._due(start, end):
                if target is not None:
                    batches.check_caught_up(target, start)
                    return
                time.sleep(POLL)
                continue
            self._batch(start, end)
            start = end
            if target is not None and batches.again(self.log, target, self.engine.plan.loops).reached(end):
                return

    def _due(self, start: Offsets, end: Offsets) -> bool:
        """Whether there is anything new, or something waits for the clock."""
        if end.topics != start.topics or end.anew(start) or batches.closes_empty(start, end):
            return True
        tick = self.settings.tick_ms
        waits = self.engine.plan.ticks or batches.waits_for_empty(end, self.since, tick)
        return waits and end.clock - start.clock >= tick

    def _batch(self, start: Offsets, end: Offsets) -> None:
        self.checkpoint.plan_batch(end)
        fault_points.at("planned")
        before = dict(self.engine.states)
        pieces = batches.pieces(self.log, self.engine.plan, start, end, self.settings.lost)
        results = self.committer.encoded(self.engine.step(pieces, end.clock, bounded=end.bounded))
        while results.failures:  # once more, from the state before, without the jobs that failed
            self.quarantine.commit_failures(
                max(self.checkpoint.batch, self.committer.last + 1), end.clock, results.failures
            )
            if self.quarantine.stops_all(self.engine.plan) and self.committer.last < self.checkpoint.batch:
                self.checkpoint.withdraw_batch()  # nothing of it is in the log, so mended jobs, or others beside them, may cut it otherwise
            self.committer.check_left()
            self.engine.states = dict(before)
            self.engine.plan = self.quarantine.plan(self.engine.plan)
            results = self.committer.encoded(self.engine.step(pieces, end.clock, bounded=end.bounded))
        fault_points.at("computed")
        self.committer.commit(self.checkpoint.batch, results)
        self.checkpoint.commit_batch(before, self.engine.states)
        fault_points.at("stored")
        self.hooks.report(replace(results, quarantined=self.quarantine.reasons))
