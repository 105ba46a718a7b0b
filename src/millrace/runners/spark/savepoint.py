"""Savepoints of runs on Spark, and state that moves to a new checkpoint because jobs, slots or partitions
have changed.

Spark itself reads its checkpoint (`read_savepoint`); the state it gives is written in the format of all
savepoints (`save_stopped_run`).

State cannot be written into a checkpoint of Spark's. So a new checkpoint begins with a seed: a savepoint in
the state folder, from which each slot takes its part when it is first called. The identity of the folder
names the checkpoint that counts, and is replaced atomically.

Example: a run with 4 slots has completed 12 batches, and starts again with 8 slots.

    1. the state after batch 11 is read from `checkpoint`, and divided into 8 slots
    2. it is written to `seed-12-….savepoint`
    3. `identity.json` gets 8 slots and base 12: from now on `checkpoint-12` counts, and batch 0 of Spark's is
       batch 12 of the run
    4. `checkpoint` is removed

Killed before step 3, the run starts over at step 1; killed after it, with `checkpoint-12` and the seed.
Either is complete.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.config import Settings
from millrace.engine.plan import Plan
from millrace.engine.rescale import redistribute
from millrace.engine.state import SlotState, damage_error
from millrace.errors import StateMismatch
from millrace.log import Log
from millrace.runners import batches
from millrace.runners.batches import Offsets
from millrace.runners.slots import make_slot_labels
from millrace.runners.spark import session
from millrace.runners.spark.open_logs import LogLocation, get_log
from millrace.runners.spark.stage import CHUNK_STRIDE, META_ID
from millrace.runners.state.evolution import StateChanges, evolve
from millrace.runners.state.folder import Identity, StateFolder, check_checkpoints, checkpoint_path, seed_path
from millrace.runners.state.hadoop_checksums import read_checked_text
from millrace.runners.state.savepoint import Savepoint, describe_unfinished, load_savepoint, write_savepoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.engine.rescale import StageSlot


@dataclass(frozen=True)
class StateMove:
    """Which state has to move, and to what."""

    old_identity: Identity
    """The jobs, slots and partitions that the folder is bound to before the move."""
    state_changes: StateChanges
    partitions: int


def newest_batch(folder: Path) -> int:
    """The last batch in a folder of Spark's checkpoint (`offsets`: planned,
    `commits`: complete), -1 if none.
    """
    return max((int(file.name) for file in folder.glob("[0-9]*") if file.name.isdigit()), default=-1)


def read_committed_offsets(checkpoint: Path) -> Offsets:
    """The offsets at which the last complete batch ended."""
    return _read_offsets(checkpoint / "offsets" / str(newest_batch(checkpoint / "commits")))


def read_planned_offsets(checkpoint: Path) -> Offsets:
    """The offsets at which the last batch ends that was begun."""
    return _read_offsets(checkpoint / "offsets" / str(newest_batch(checkpoint / "offsets")))


def _read_offsets(path: Path) -> Offsets:
    text = read_checked_text(path)
    try:
        return Offsets.from_json(text.splitlines()[-1])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise damage_error(str(path), "some place", f"{type(error).__name__}: {error}") from error


def save_stopped_run(
    folder: StateFolder, target: Path, settings: Settings, spark: SparkSession | None = None
) -> Savepoint:
    """Writes the state of a stopped run to a savepoint.
    Without a session, Spark is started for it, and stopped.
    """
    identity = folder.read_identity()
    assert identity is not None
    with folder.with_scratch():
        spark_session = spark or session.open_in_folder(settings, identity.partitions, folder)
        try:
            saved = read_savepoint(spark_session, folder.path, identity, "make the savepoint")
        finally:
            if spark is None:
                spark_session.stop()
    if saved is None:
        raise StateMismatch(f"{folder.path} holds no state yet, as no batch was done; run its jobs first")
    write_savepoint(saved, target)
    return saved


def read_savepoint(spark: SparkSession, path: Path, identity: Identity, next_step: str) -> Savepoint | None:
    """The state after the last batch, None before the first one.
    Refuses an unfinished batch; `next_step` is for the message.
    """
    check_checkpoints(path)
    checkpoint, seed = checkpoint_path(path, identity), seed_path(path, identity)
    complete = newest_batch(checkpoint / "commits")
    if newest_batch(checkpoint / "offsets") > complete:
        raise StateMismatch(describe_unfinished(path, next_step))
    if complete < 0:
        return load_savepoint(seed) if seed.exists() else None
    offsets = read_committed_offsets(checkpoint)
    numbers = [folder.name for folder in (checkpoint / "state").glob("[0-9]*")]
    states: dict[StageSlot, SlotState] = {}
    for number in numbers:
        states |= _read_stage_states(spark, checkpoint, int(number), identity)
    if not states and seed.exists():
        states = dict(load_savepoint(seed).states)
    return Savepoint(identity, offsets, states)


def _read_stage_states(
    spark: SparkSession, checkpoint: Path, number: int, identity: Identity
) -> dict[StageSlot, SlotState]:
    """The slots of one stage of Spark's.
    Spark counts stages from the last one, so `number` is not the plan's.
    """
    reader = (
        spark.read.format("statestore")
        .option("path", str(checkpoint))
        .option("operatorId", number)
        .option("stateVarName", "chunks")
    )
    slot_labels = make_slot_labels(identity.slots, identity.partitions)
    metas: dict[StageSlot, bytes] = {}
    chunks: dict[StageSlot, dict[int, bytes]] = {}
    for row in (
        reader.load().select("key.slot", "user_map_key.id", "user_map_value.body").toArrow().to_pylist()
    ):
        chunk_id, slot = row["id"], slot_labels.index(row["slot"])
        depth = META_ID - chunk_id if chunk_id < 0 else chunk_id // CHUNK_STRIDE
        stage_slot = (number * CHUNK_STRIDE + depth, slot)
        if chunk_id < 0:
            metas[stage_slot] = row["body"]
        else:
            chunks.setdefault(stage_slot, {})[chunk_id % CHUNK_STRIDE] = row["body"]
    return {
        stage_slot: SlotState.open(meta, chunks.get(stage_slot, {}).__getitem__)
        for stage_slot, meta in metas.items()
    }


def move_state(spark: SparkSession, path: Path, plan: Plan, settings: Settings, move: StateMove) -> Identity:
    """Moves the state to the seed of a new checkpoint, and binds the folder to it.
    Does nothing if an earlier attempt has done so.
    """
    folder = StateFolder(path, lock=-1)
    known = folder.read_identity()
    if known is not None and known != move.old_identity:
        return known
    savepoint = read_savepoint(spark, path, move.old_identity, "change them")
    states = {} if savepoint is None else savepoint.states
    evolved_state = evolve(move.old_identity, plan, states, move.state_changes, str(path))
    batches_done = newest_batch(checkpoint_path(path, move.old_identity) / "commits") + 1
    identity = replace(
        evolved_state.identity, partitions=move.partitions, base=move.old_identity.base + batches_done
    )
    if savepoint is not None:
        cut = redistribute(plan, states) if evolved_state.states is None else evolved_state.states
        write_seed(
            path,
            Savepoint(identity, savepoint.offsets, cut),
            plan,
            get_log(LogLocation.of(settings), create=True),
        )
    folder.rebind(identity)
    if batches_done:
        shutil.rmtree(checkpoint_path(path, move.old_identity), ignore_errors=True)
    if (old := seed_path(path, move.old_identity)) != seed_path(path, identity):
        old.unlink(missing_ok=True)
    return identity


def write_seed(path: Path, savepoint: Savepoint, plan: Plan, log: Log) -> None:
    """Writes the seed of a new checkpoint.
    Topics that were not read before begin with the oldest record of the log.
    """
    for topic in plan.topics:
        log.ensure(topic)
    write_savepoint(
        replace(
            savepoint,
            offsets=batches.resolve_offsets(log, savepoint.offsets, [topic.name for topic in plan.topics]),
        ),
        seed_path(path, savepoint.identity),
    )
