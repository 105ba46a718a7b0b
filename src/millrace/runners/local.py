"""The local runner: one process, no Java, for tests, notebooks and small machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from millrace.config import RunSettings, Settings
from millrace.engine import stage
from millrace.engine.exchange import Body
from millrace.engine.isolation import RUNNING_JOBS
from millrace.engine.plan import Plan
from millrace.engine.progress import PartitionWatermark
from millrace.engine.sink import Results, gather
from millrace.engine.source import PartitionBatch, route_batch
from millrace.engine.state import SlotState
from millrace.log import Log, fault_points, open_log
from millrace.log.owners import Owner, claim_topics
from millrace.runners import batches
from millrace.runners.batch_clock import BatchClock, wall_clock
from millrace.runners.batches import Offsets
from millrace.runners.bounded import BoundedRun, check_ended
from millrace.runners.commit import Committer
from millrace.runners.signals import stop_signals
from millrace.runners.slots import choose_local_slots
from millrace.runners.state.checkpoint import Checkpoint, SlotStates
from millrace.runners.state.evolution import StateChanges
from millrace.runners.state.folder import StateFolder, lock_folder
from millrace.runners.state.quarantine import Quarantine, open_quarantine
from millrace.runners.state.savepoint import adapt_savepoint, load_savepoint
from millrace.runners.upstream import follow_writers, with_watermarks
from millrace.stream import Job

POLL_SECONDS = 0.02
"""Seconds between two looks for new events."""


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
        self.states: SlotStates = {
            (depth, slot): SlotState()
            for depth in range(1, self.plan.depth + 1)
            for slot in range(self.plan.slots)
        }
        self.partition_watermarks: Mapping[str, list[PartitionWatermark]] = {}
        """The watermarks of partitions after the last batch."""

    def step(
        self,
        partition_batches: Sequence[PartitionBatch],
        now: int,
        *,
        end: bool = False,
        ended: Collection[str] = (),
        bounded: bool = False,
    ) -> Results:
        """One batch. Partitions without a piece have nothing new; of topics that have `ended`, or of all at
        the `end`, nothing more is expected.

        `bounded`: partitions that have never held a record do not hold the watermark back.
        """
        present = {(batch.topic, batch.partition) for batch in partition_batches}
        absent = [
            PartitionBatch(t, p)
            for t, n in self.partitions.items()
            for p in range(n)
            if (t, p) not in present
        ]
        packets = route_batch(
            self.plan,
            [*partition_batches, *absent],
            now,
            ended=self.partitions if end else ended,
            bounded=bounded,
        )
        for depth in range(1, self.plan.depth + 1):
            inboxes: dict[int, list[Body]] = {slot: [] for slot in range(self.plan.slots)}
            for packet in packets:
                inboxes[packet.slot].append(packet.body)
            packets = []
            for slot, bodies in inboxes.items():
                self.states[depth, slot], outgoing = stage.step(
                    self.plan, depth, slot, self.states[depth, slot], bodies
                )
                packets += outgoing
        results = gather(self.plan, [packet.body for packet in packets])
        self.partition_watermarks = results.partition_watermarks
        return results

    def restore(self, checkpoint: Checkpoint, quarantine: Quarantine) -> None:
        """Continues from a checkpoint, without the jobs under quarantine."""
        self.states = checkpoint.restore(self.states)
        self.plan = quarantine.pause_jobs(self.plan.with_births(checkpoint.identity.births))

    def restart(self) -> None:
        """All state to bytes and back, as after a stop."""
        for key, state in self.states.items():
            saved = state.changes_since(SlotState())
            self.states[key] = SlotState.open(saved.meta, saved.put.__getitem__)
        stage.forget_state()


@dataclass(frozen=True)
class Hooks:
    """The connections of a run to its surroundings, which tests replace."""

    stop: Callable[[], bool] = lambda: False
    clock: Callable[[], int] = wall_clock
    elapsed: Callable[[], int] | None = None
    """Time that passes without jumps, in milliseconds; by default the machine's, where `clock` is."""
    report: Callable[[Results], None] = lambda _: None

    def stop_also_when(self, is_stopped: Callable[[], bool]) -> Hooks:
        """The same hooks with one more reason to stop, which is asked first."""
        return replace(self, stop=lambda: is_stopped() or self.stop())


def run_local(
    jobs: Sequence[Job],
    *,
    settings: Settings,
    until_caught_up: bool = False,
    until_end: bool = False,
    hooks: Hooks | None = None,
    retry: Sequence[str] = (),
    state_changes: StateChanges | None = None,
    restore: Path | None = None,
    take_over: bool = False,
) -> None:
    """Runs jobs over the log until Ctrl-C or SIGTERM, or until they have read what the log holds now, and
    have come to the end of it (`bounded`).

    Exactly once, like the Spark runner: a batch's range and clock are written down before it runs, its
    results carry its number, and its state is stored last. When stopped, it finishes the batch at hand and
    raises KeyboardInterrupt. A job whose own code raises is stopped alone; `JobQuarantined` reports it at the
    end. Such jobs stay out of later runs until they are named in `retry`.

    `state_changes`: jobs whose state is dropped or migrated; `restore`: a savepoint from which a new state
    folder starts; `take_over`: topics that another state writes become this one's.
    """
    log, run = open_log(settings), settings.run.name
    engine = _make_engine(jobs, log, settings)
    with (
        lock_folder(settings.state.dir / run) as folder,
        _open_checkpoint(folder, engine.plan, state_changes, restore) as checkpoint,
        _claim_topics(log, engine.plan, checkpoint, folder, run, take_over=take_over),
        open_quarantine(folder.path, engine.plan, retry) as quarantine,
        closing(
            Committer(log, engine.plan, run=run, state=checkpoint.id, quarantine=quarantine)
        ) as committer,
        closing(log),
        stop_signals(_describe_work) as stopping,
    ):
        _check_committed(folder, checkpoint, committer)
        _check_ended(
            log, engine.plan, folder, checkpoint, until_caught_up=until_caught_up, until_end=until_end
        )
        engine.restore(checkpoint, quarantine)
        hooks = (hooks or Hooks()).stop_also_when(stopping.is_set)
        clock, now = BatchClock(hooks.clock, hooks.elapsed), hooks.clock()
        local_run = _LocalRun(log, engine, checkpoint, committer, quarantine, settings.run, hooks, clock, now)
        local_run.run_batches(is_bounded=until_caught_up or until_end, until_end=until_end)
    if stopping.is_set():
        raise KeyboardInterrupt
    quarantine.check()


def _check_ended(
    log: Log,
    plan: Plan,
    folder: StateFolder,
    checkpoint: Checkpoint,
    *,
    until_caught_up: bool,
    until_end: bool,
) -> None:
    """Refuses to go on with streams that have ended, unless there is nothing new to read."""
    check_ended(
        log,
        plan,
        checkpoint.planned_offsets or checkpoint.committed_offsets,
        str(folder.path),
        is_unfinished=checkpoint.planned_offsets is not None,
        until_caught_up=until_caught_up,
        until_end=until_end,
    )


def _make_engine(jobs: Sequence[Job], log: Log, settings: Settings) -> Engine:
    """The engine, with as many partitions of each topic as the log has."""
    engine = Engine(jobs, slots=choose_local_slots(settings))
    for topic in engine.plan.topics:
        log.ensure(topic)
        engine.partitions[topic.name] = len(log.end_offsets(topic.name))
    return engine


def _check_committed(folder: StateFolder, checkpoint: Checkpoint, committer: Committer) -> None:
    """Refuses state that does not belong to the log, and a run whose jobs are all under quarantine."""
    committer.check_state(
        folder.path,
        complete=checkpoint.batch - 1,
        planned=checkpoint.batch - (checkpoint.planned_offsets is None),
    )
    committer.check_all_quarantined()


def _describe_work() -> str:
    return f"job {', '.join(RUNNING_JOBS.jobs)}" if RUNNING_JOBS.jobs else "the run"


@contextmanager
def _claim_topics(
    log: Log, plan: Plan, checkpoint: Checkpoint, folder: StateFolder, run: str, *, take_over: bool
) -> Iterator[None]:
    """With the output topics as this state's own."""
    names, heir_of = [topic.name for topic in plan.outputs], checkpoint.identity.heir_of
    claim_topics(
        log,
        names,
        Owner(checkpoint.id, run),
        folder=str(folder.path),
        take_over=take_over,
        inherits_from=heir_of,
    )
    yield


def _open_checkpoint(
    folder: StateFolder, plan: Plan, state_changes: StateChanges | None, restore: Path | None
) -> Checkpoint:
    """The memory of the run, perhaps as a savepoint has it."""
    if restore is None:
        folder.check_restored()
        return Checkpoint(folder, plan, state_changes)
    folder.check_new()
    savepoint = adapt_savepoint(restore, plan, state_changes or StateChanges())
    with folder.mark_restoring():
        checkpoint = Checkpoint(folder, plan)
        fault_points.at("restoring")
        checkpoint.replace_states(savepoint.states, savepoint.offsets)
        checkpoint.identity = replace(
            savepoint.identity, id=checkpoint.id, heir_of=load_savepoint(restore).identity.id
        )
        folder.rebind(checkpoint.identity)
    return checkpoint


@dataclass(frozen=True, eq=False)
class _LocalRun:
    log: Log
    engine: Engine
    checkpoint: Checkpoint
    committer: Committer
    quarantine: Quarantine
    settings: RunSettings
    hooks: Hooks
    clock: BatchClock
    started_at: int
    """When it began."""

    def run_batches(self, *, is_bounded: bool, until_end: bool) -> None:
        """Batch after batch, the one that was begun and not finished first."""
        topics = self.engine.plan.topics
        start = batches.resolve_offsets(
            self.log,
            self.checkpoint.committed_offsets or batches.beginning_offsets(self.log, topics),
            [topic.name for topic in topics],
        )
        bounded = self._find_bounds(start, until_end=until_end) if is_bounded else None
        start = start if bounded is None else bounded.begin(start)
        is_first = True
        while not self.hooks.stop():
            planned = self.checkpoint.planned_offsets
            end = planned or self._plan_batch(start, bounded)
            has_ticks = bounded is None or is_first
            if planned is None and not self._is_due(start, end, has_ticks=has_ticks):
                if bounded is None or not bounded.is_read(self.log, start):
                    time.sleep(POLL_SECONDS)
                    continue
                ending = bounded.plan_ending(start, end.clock)
                if ending is None:
                    return
                end = ending
            self._run_batch(start, end)
            start, is_first = end, False

    def _find_bounds(self, start: Offsets, *, until_end: bool) -> BoundedRun:
        return BoundedRun.of(
            self.log,
            self.engine.plan,
            self.checkpoint.planned_offsets or start,
            until_end=until_end,
            retries_jobs=bool(self.quarantine.released),
        )

    def _plan_batch(self, start: Offsets, bounded: BoundedRun | None) -> Offsets:
        end = batches.plan_batch_end(
            self.log if bounded is None else bounded.ends(self.log),
            start,
            now=self.clock.after(start.clock),
            limit=self.settings.max_events_per_batch,
            alignment=batches.WatermarkAlignment(
                self.engine.partition_watermarks.values(), self.settings.max_ahead_ms
            ),
            on_data_loss=self.settings.on_data_loss,
            bounded=bounded is not None,
        )
        return follow_writers(self.log, self.engine.plan.followed_topics, start, end)

    def _is_due(self, start: Offsets, end: Offsets, *, has_ticks: bool) -> bool:
        """Whether there is anything new or, with `has_ticks`, something waits for the clock."""
        if start.has_ended:
            return end.topics != start.topics
        if (
            end.topics != start.topics
            or end.watermarks != start.watermarks
            or end.recreated_topics(start)
            or batches.has_to_close_empty(start, end)
        ):
            return True
        tick = self.settings.tick_ms
        waits = self.engine.plan.needs_ticks or batches.is_waiting_for_empty(end, self.started_at, tick)
        return has_ticks and waits and end.clock - start.clock >= tick

    def _run_batch(self, start: Offsets, end: Offsets) -> None:
        self.checkpoint.plan_batch(end)
        fault_points.at("planned")
        before = dict(self.engine.states)
        partition_batches = with_watermarks(
            batches.read_batch(self.log, self.engine.plan, start, end, self.settings.on_data_loss),
            end.watermarks,
        )
        results = self.committer.encode_outputs(
            self.engine.step(partition_batches, end.clock, ended=end.ended, bounded=end.bounded)
        )
        while results.failures:  # once more, from the state before, without the jobs that failed
            self.quarantine.commit_failures(
                max(self.checkpoint.batch, self.committer.last_batch + 1), end.clock, results.failures
            )
            if (
                self.quarantine.stops_all(self.engine.plan)
                and self.committer.last_batch < self.checkpoint.batch
            ):
                # Nothing of it is in the log, so mended jobs, or others beside them, may cut it otherwise
                self.checkpoint.withdraw_batch()
            self.committer.check_all_quarantined()
            self.engine.states = dict(before)
            self.engine.plan = self.quarantine.pause_jobs(self.engine.plan)
            results = self.committer.encode_outputs(
                self.engine.step(partition_batches, end.clock, ended=end.ended, bounded=end.bounded)
            )
        fault_points.at("computed")
        self.committer.commit(self.checkpoint.batch, results)
        self.checkpoint.commit_batch(before, self.engine.states)
        fault_points.at("stored")
        self.hooks.report(replace(results, quarantined=self.quarantine.reasons))
