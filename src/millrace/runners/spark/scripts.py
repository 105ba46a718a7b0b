"""Scripts on Spark: the real stages, shuffles, state and checkpoint,
fed with the batches and the clock that a test says.
"""

from __future__ import annotations

import pickle
import queue
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from millrace.config import SparkSettings
from millrace.engine.plan import Plan
from millrace.engine.sink import Results, gather
from millrace.engine.source import PartitionBatch, route_batch
from millrace.errors import RunFailed
from millrace.runners.slots import make_slot_labels
from millrace.runners.spark import session
from millrace.runners.spark.query import add_stages
from millrace.runners.spark.serialized_plan import SerializedPlan
from millrace.runners.spark.sink import collect_bodies
from millrace.runners.spark.source import PACKET_SCHEMA, encode_packets, to_record_batch
from millrace.runners.spark.supervisor.failures import explain_failure
from millrace.stream import Job
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import BatchResult, decode_events
from millrace.values.atomic_files import write_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_TIMEOUT = 180
"""Seconds that a batch may take; only a query that hangs takes as long."""
PARTITIONS = 2


@cache
def shared_session() -> SparkSession:
    """One for all scripts of this process, since starting one takes longer than most scripts."""
    scratch = Path(tempfile.mkdtemp(prefix="millrace-spark-"))
    settings = SparkSettings(master=f"local[{PARTITIONS}]")
    return session.open_session(
        settings, name="testing", partitions=PARTITIONS, scratch=scratch, output=scratch / "spark.log"
    )


@dataclass(frozen=True)
class ScriptedBatch:
    """A batch as the script says it: pieces, the clock, and whether nothing follows."""

    partition_batches: list[PartitionBatch]
    now: int
    end: bool


@dataclass
class _BatchPart(InputPartition):
    """Every other piece of a batch, so that two tasks have to agree."""

    step: int
    remainder: int


class SparkScript:
    """A query of its own in the shared session."""

    def __init__(
        self, jobs: Sequence[Job], partitions: Mapping[str, int], *, slots: int = 2 * PARTITIONS
    ) -> None:
        """`partitions`: how many each topic has; `slots`: into how many parts the keys are dealt."""
        self._plan = Plan.of(jobs, slots=slots)
        self._partitions = dict(partitions)
        self._folder = Path(tempfile.mkdtemp(prefix="millrace-script-"))
        (self._folder / "steps").mkdir()
        self._finished_batches: queue.Queue[tuple[int, Results]] = queue.Queue()
        self._steps = 0
        self._ends: dict[tuple[str, int], int] = defaultdict(int)
        self._query = self._start()

    def feed(self, batch: Sequence[SourceEvent], now: int, *, end: bool = False) -> BatchResult:
        """One batch, which is exactly one batch of the query."""
        events_by_partition: dict[tuple[str, int], list[SourceEvent]] = defaultdict(list)
        for event in batch:
            events_by_partition[event.topic, event.partition].append(event)
            self._ends[event.topic, event.partition] = event.offset + 1
        partition_batches = [
            PartitionBatch(
                topic.name,
                number,
                decode_events(topic, events_by_partition[topic.name, number])
                if events_by_partition[topic.name, number]
                else None,
                end_offset=self._ends[topic.name, number],
            )
            for topic in self._plan.topics
            for number in range(self._partitions[topic.name])
        ]
        scripted = pickle.dumps(ScriptedBatch(partition_batches, now, end))
        write_file(self._folder / "steps" / str(self._steps), scripted, durable=False)
        self._steps += 1
        return _to_fed(self._wait_for(self._steps - 1))

    def restart(self) -> None:
        """Stops the query and starts it from its checkpoint."""
        self._query.stop()
        self._query = self._start()

    def close(self) -> None:
        """Stops the query and removes its files."""
        self._query.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> StreamingQuery:
        spark, serialized_plan, slot_labels = (
            shared_session(),
            SerializedPlan.pack(self._plan),
            make_slot_labels(self._plan.slots, PARTITIONS),
        )
        name = f"scripted_{self._folder.name.replace('-', '_')}"
        spark.dataSource.register(_make_source(name, serialized_plan, slot_labels, self._folder / "steps"))
        frame = add_stages(
            spark.readStream.format(name).load(), serialized_plan, self._plan.depth, slot_labels
        )
        return (
            frame.writeStream.option("checkpointLocation", str(self._folder / "checkpoint"))
            .foreachBatch(self._collect_batch)
            .start()
        )

    def _collect_batch(self, frame: DataFrame, batch: int) -> None:
        self._finished_batches.put((batch, gather(self._plan, collect_bodies(frame))))

    def _wait_for(self, step: int) -> Results:
        for _ in range(BATCH_TIMEOUT * 10):
            try:
                batch, results = self._finished_batches.get(timeout=0.1)
            except queue.Empty:
                failed = self._query.exception()
                if failed is not None:
                    raise explain_failure(failed, state=self._folder) from failed
                continue
            if batch == step:
                return results
        raise RunFailed(f"batch {step} was not done within {BATCH_TIMEOUT} s")


def _make_source(
    name: str, plan: SerializedPlan, slot_labels: tuple[int, ...], steps: Path
) -> type[DataSource]:
    class ScriptedSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return PACKET_SCHEMA

        def streamReader(self, schema: StructType) -> ScriptedReader:  # noqa: ARG002, N802 - Spark's interface
            return ScriptedReader(plan, slot_labels, steps)

    return ScriptedSource


class ScriptedReader(DataSourceStreamReader):
    """A step of the script is a batch, however many are ready."""

    def __init__(self, plan: SerializedPlan, slot_labels: tuple[int, ...], steps: Path) -> None:
        self._plan, self._slot_labels, self._steps = plan, slot_labels, steps

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        """Before the first step."""
        return {"step": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's interface
        """One step on, if the script has got that far."""
        return {"step": start["step"] + (self._steps / str(start["step"])).exists()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Two tasks for each batch."""
        return [
            _BatchPart(step, remainder)
            for step in range(start["step"], end["step"])
            for remainder in range(PARTITIONS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Routes its share."""
        assert isinstance(partition, _BatchPart)
        scripted: ScriptedBatch = pickle.loads((self._steps / str(partition.step)).read_bytes())  # noqa: S301 - our own file
        part = scripted.partition_batches[partition.remainder :: PARTITIONS]
        plan = self._plan.unpack()
        ended = [topic.name for topic in plan.topics] if scripted.end else []
        packets = route_batch(plan, part, scripted.now, ended=ended)
        yield to_record_batch(encode_packets(packets), self._slot_labels)


def _to_fed(results: Results) -> BatchResult:
    written = {topic: frame.to_dicts() for topic, frame in results.outputs.items()}
    return BatchResult(written, {job: frame.to_dicts() for job, frame in results.late.items()})
