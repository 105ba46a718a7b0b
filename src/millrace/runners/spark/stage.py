"""A stage as a Spark operator: a slot's state in, its packets through the engine, its changes and packets
out.

Spark unpacks it also in a process that only asks for the names of its state; so the engine is loaded where it
is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from millrace.runners.spark.serialized_plan import SerializedPlan

if TYPE_CHECKING:
    from millrace.engine.exchange import Packet
    from millrace.engine.state import SlotState

_BODY = StructType([StructField("body", BinaryType())])
_ID = StructType([StructField("id", LongType())])
"""Schemas as objects: as text, each task would ask the JVM to parse them."""
META_ID = -1
"""The key of the description of state at depth 0; below it those of the next depths."""
CHUNK_STRIDE = 1 << 40
"""The chunks of the next depth begin here; no depth has as many."""


class Stage(StatefulProcessor):
    """All operators of one depth; with one slot, of all depths, since no packet has to change slots between
    them.

    State is one map: chunks by number, and under `META` the description of which there are. A second state
    variable would be tidier, but setting one up takes Spark several milliseconds in each task.

    Chunks are known by digest, and a worker that has decoded one before does not fetch it again: usually only
    `meta` is read.
    """

    def __init__(
        self, plan: SerializedPlan, depths: Sequence[int], labels: tuple[int, ...], seed: str | None = None
    ) -> None:
        """`seed`: a savepoint with the initial state of slots."""
        self._seed = seed
        self._plan = plan
        self._depths = tuple(depths)
        self._labels = labels

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declares the state."""
        self._chunks = handle.getMapState("chunks", _ID, _BODY)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803 - Spark's interface
        """Processes the packets of one slot."""
        from millrace.engine.exchange import Body, Packet

        slot = self._labels.index(int(key[0]))
        packets = [Packet(slot, Body.decode(bytes(row.packet))) for row in rows]
        for position, depth in enumerate(self._depths):
            packets = self._step(position, depth, slot, packets)
        for packet in packets:
            yield Row(slot=self._labels[packet.slot], packet=packet.body.encode())

    def close(self) -> None:
        """There is nothing to close."""

    def _step(self, position: int, depth: int, slot: int, packets: Sequence[Packet]) -> list[Packet]:
        """Runs one depth. Its chunks begin at `position * CHUNK_STRIDE` in the map."""
        from millrace.engine.stage import step
        from millrace.engine.state import SlotState

        meta = self._chunks.getValue((META_ID - position,))
        before = SlotState.open(
            None if meta is None else bytes(meta[0]),
            partial(self._load_chunk, position * CHUNK_STRIDE),
            f"Spark's checkpoint, stage {depth}, slot {slot},",
        )
        initial = self._initial_state(depth, slot) if meta is None and self._seed is not None else before
        after, outgoing = step(self._plan.unpack(), depth, slot, initial, [packet.body for packet in packets])
        changes = after.changes_since(before)
        for number, body in changes.put.items():
            self._chunks.updateValue((position * CHUNK_STRIDE + number,), (body,))
        for number in changes.delete:
            self._chunks.removeKey((position * CHUNK_STRIDE + number,))
        self._chunks.updateValue((META_ID - position,), (changes.meta,))
        return outgoing

    def _initial_state(self, depth: int, slot: int) -> SlotState:
        from millrace.engine.state import SlotState
        from millrace.runners.state.savepoint import load_savepoint

        assert self._seed is not None
        return load_savepoint(Path(self._seed)).states.get((depth, slot), SlotState())

    def _load_chunk(self, start: int, number: int) -> bytes:
        found = self._chunks.getValue((start + number,))
        assert found is not None, f"chunk {number} is named by the state but not stored"
        return bytes(found[0])
