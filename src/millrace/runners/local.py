"""One process, no Java: the engine on its own, for tests, notebooks and small machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from millrace.config import Settings
from millrace.engine import stage
from millrace.engine.plan import Plan
from millrace.engine.sink import Results, gather
from millrace.engine.source import Piece, route
from millrace.engine.state import SlotState
from millrace.log import Log, open_log
from millrace.runners import feed
from millrace.runners.checkpoint import Checkpoint, States
from millrace.runners.commit import Committer
from millrace.runners.folder import hold
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
        return gather(self.plan, [packet.body for packet in packets])

    def restart(self) -> None:
        """All state to bytes and back, as after a stop."""
        for key, state in self.states.items():
            saved = state.changes_since(SlotState())
            self.states[key] = SlotState.open(saved.meta, saved.put.__getitem__)


def run_local(
    jobs: Sequence[Job],
    *,
    settings: Settings,
    until_caught_up: bool = False,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    report: Callable[[Results], None] = lambda results: None,
) -> None:
    """Runs jobs over the log until `stop`, or until they have read what the log holds now. Exactly once, like the Spark runner:
    a batch's range and clock are written down before it runs, its results carry its number, and its state is stored last."""
    log = open_log(settings.log.url)
    engine = Engine(jobs, slots=settings.spark.slots or 1)
    for topic in engine.plan.topics:
        log.ensure(topic)
    with hold(settings.state.dir / settings.run.name) as folder, Checkpoint(folder, engine.plan) as checkpoint:
        committer = Committer(log, engine.plan, f"{settings.run.name}.{checkpoint.id}")
        engine.states = checkpoint.restore(engine.states)
        try:
            _batches(log, engine, checkpoint, committer, settings, until_caught_up, stop, clock, report)
        finally:
            committer.close()
            log.close()


def _batches(
    log: Log,
    engine: Engine,
    checkpoint: Checkpoint,
    committer: Committer,
    settings: Settings,
    until_caught_up: bool,
    stop: Callable[[], bool],
    clock: Callable[[], int],
    report: Callable[[Results], None],
) -> None:
    topics = engine.plan.topics
    start = checkpoint.committed or feed.begin(log, topics)
    target = feed.advance(log, start, now=clock()) if until_caught_up else None
    while not stop():
        end = checkpoint.planned or feed.advance(log, start, now=clock(), limit=settings.run.max_events_per_batch)
        due = engine.plan.ticks and end.clock - start.clock >= settings.run.tick_ms
        if checkpoint.planned is None and end.topics == start.topics and not (due and not until_caught_up):
            if target is not None:
                return
            time.sleep(POLL)
            continue
        checkpoint.plan_batch(end)
        before = dict(engine.states)
        results = engine.step(feed.pieces(log, topics, start, end), end.clock)
        committer.commit(checkpoint.batch, results)
        checkpoint.commit_batch(before, engine.states)
        report(results)
        start = end
        if target is not None and all(end.topics[t][p] >= o for t, ps in target.topics.items() for p, o in ps.items()):
            return
