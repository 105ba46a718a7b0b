"""State that leaves a checkpoint of Spark's, and enters a new one: for savepoints, and where jobs, slots or partitions have changed.

What a checkpoint holds is read by Spark itself. A new checkpoint begins with a seed, a file in the format of savepoints, of which each slot takes its part when it is
first called. Which checkpoint counts says the identity of the folder, which is replaced at once: whenever the process dies, one of both is whole.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.config import Settings
from millrace.engine.plan import Plan
from millrace.engine.rescale import recut
from millrace.engine.state import SlotState, damaged
from millrace.errors import StateMismatch
from millrace.log import Log
from millrace.runners import batches
from millrace.runners.batches import Offsets
from millrace.runners.spark.open_logs import LogPlace, opened
from millrace.runners.spark.slots import labels
from millrace.runners.spark.stage import META, STRIDE
from millrace.runners.state.evolution import Wishes, evolved
from millrace.runners.state.folder import Identity, StateFolder, checkpoint_of, seed_of
from millrace.runners.state.hadoop_checksums import checked_text
from millrace.runners.state.savepoint import Savepoint, load, unfinished, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.engine.rescale import Place


@dataclass(frozen=True)
class Move:
    """That the state of a folder is to become that of other jobs, slots or partitions."""

    known: Identity
    """What it is bound to so far."""
    wishes: Wishes
    partitions: int


def newest(folder: Path) -> int:
    """The last batch that Spark has written down in a folder of its checkpoint, -1 if none."""
    return max((int(file.name) for file in folder.glob("[0-9]*") if file.name.isdigit()), default=-1)


def reached(checkpoint: Path) -> Offsets:
    """Where the last batch that is done ended."""
    path = checkpoint / "offsets" / str(newest(checkpoint / "commits"))
    text = checked_text(path)
    try:
        return Offsets.from_json(text.splitlines()[-1])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise damaged(str(path), "some place", f"{type(error).__name__}: {error}") from error


def stored(spark: SparkSession, path: Path, identity: Identity, then: str) -> Savepoint | None:
    """What a checkpoint holds after its last batch; None: nothing was done yet. A batch that was begun and not finished is refused: `then` is what is to be done after it."""
    checkpoint, seed = checkpoint_of(path, identity), seed_of(path, identity)
    complete = newest(checkpoint / "commits")
    if newest(checkpoint / "offsets") > complete:
        raise StateMismatch(unfinished(path, then))
    if complete < 0:
        return load(seed) if seed.exists() else None
    offsets = reached(checkpoint)
    numbers = [folder.name for folder in (checkpoint / "state").glob("[0-9]*")]
    states: dict[Place, SlotState] = {}
    for number in numbers:
        states |= _states(spark, checkpoint, int(number), identity)
    if not states and seed.exists():
        states = dict(load(seed).states)
    return Savepoint(identity, offsets, states)


def _states(spark: SparkSession, checkpoint: Path, number: int, identity: Identity) -> dict[Place, SlotState]:
    """The slots of one of Spark's stages, which it counts from the last; so the stage is not what the plan calls it."""
    reader = (
        spark.read.format("statestore")
        .option("path", str(checkpoint))
        .option("operatorId", number)
        .option("stateVarName", "chunks")
    )
    spread = labels(identity.slots, identity.partitions)
    metas: dict[Place, bytes] = {}
    chunks: dict[Place, dict[int, bytes]] = {}
    for row in (
        reader.load().select("key.slot", "user_map_key.id", "user_map_value.body").toArrow().to_pylist()
    ):
        id, slot = row["id"], spread.index(row["slot"])
        depth = META - id if id < 0 else id // STRIDE
        place = (number * STRIDE + depth, slot)
        if id < 0:
            metas[place] = row["body"]
        else:
            chunks.setdefault(place, {})[id % STRIDE] = row["body"]
    return {place: SlotState.open(meta, chunks.get(place, {}).__getitem__) for place, meta in metas.items()}


def moved(spark: SparkSession, path: Path, plan: Plan, settings: Settings, move: Move) -> Identity:
    """Makes the seed of a new checkpoint out of what the old one holds, and binds the folder to it; what was done in an earlier attempt is found."""
    folder = StateFolder(path, lock=-1)
    known = folder.identity()
    if known is not None and known != move.known:
        return known
    saved = stored(spark, path, move.known, "change them")
    states = {} if saved is None else saved.states
    after = evolved(move.known, plan, states, move.wishes, str(path))
    done = newest(checkpoint_of(path, move.known) / "commits") + 1
    identity = replace(after.identity, partitions=move.partitions, base=move.known.base + done)
    if saved is not None:
        cut = recut(plan, states) if after.states is None else after.states
        plant(path, Savepoint(identity, saved.offsets, cut), plan, opened(LogPlace.of(settings), create=True))
    folder.rebind(identity)
    if done:
        shutil.rmtree(checkpoint_of(path, move.known), ignore_errors=True)
    if (old := seed_of(path, move.known)) != seed_of(path, identity):
        old.unlink(missing_ok=True)
    return identity


def plant(path: Path, saved: Savepoint, plan: Plan, log: Log) -> None:
    """The seed of a checkpoint. Topics that were not read so far begin with what the log holds now."""
    for topic in plan.topics:
        log.ensure(topic)
    write(
        replace(saved, offsets=batches.joined(log, saved.offsets, [topic.name for topic in plan.topics])),
        seed_of(path, saved.identity),
    )
