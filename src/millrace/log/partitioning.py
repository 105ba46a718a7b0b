"""The partition of each record: chosen by its producer, by its key, or in turn where it has no key.

Keys are placed as Kafka's Java client places them (`murmur2`), so topics that others also write are
partitioned alike. Topics written by earlier versions placed keys by millrace's own hash. They keep it: if an
update of key `a` went to another partition than the record it replaces, a compacted topic would keep both for
ever, and a table would read whichever comes last.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace.errors import LogError
from millrace.log import murmur2
from millrace.log.contract import BinaryArray, OutgoingRecords, Partitioner
from millrace.values import key_hash

NEW_TOPICS: Partitioner = "murmur2"
UNRECORDED: Partitioner = "millrace-hash"
"""The partitioner of topics whose declaration was stored before partitioners were recorded."""


def split_by_partition(
    topic: str, batch: OutgoingRecords, partitions: int, first_turn: int, partitioner: Partitioner
) -> Iterator[tuple[int, OutgoingRecords]]:
    """The records of each partition in their order; those without a key take turns from `first_turn` on."""
    partition_of_row = _partition_numbers(topic, batch, partitions, first_turn, partitioner)
    order = np.argsort(partition_of_row.astype(np.int16), kind="stable")
    ends = np.cumsum(np.bincount(partition_of_row, minlength=partitions)).tolist()
    rows = pa.array(order)
    values, keys = batch.values.take(rows), None if batch.keys is None else batch.keys.take(rows)
    for partition, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            headers = (
                None if batch.headers is None else [batch.headers[row] for row in order[start:end].tolist()]
            )
            yield (
                partition,
                OutgoingRecords(
                    values.slice(start, end - start),
                    None if keys is None else keys.slice(start, end - start),
                    headers,
                ),
            )


def _partition_numbers(
    topic: str, batch: OutgoingRecords, partitions: int, first_turn: int, partitioner: Partitioner
) -> NDArray[Any]:
    if batch.partitions is not None:
        lowest, highest = int(batch.partitions.min(initial=0)), int(batch.partitions.max(initial=0))
        if lowest < 0 or highest >= partitions:
            invalid = lowest if lowest < 0 else highest
            raise LogError(
                f"{topic} has partitions 0 to {partitions - 1}, but a record is meant for {invalid}; "
                "nothing was appended"
            )
        return batch.partitions
    if batch.keys is None:
        return (first_turn + np.arange(len(batch))) % partitions
    numbers = place_keys(batch.keys, partitions, partitioner)
    if batch.keys.null_count:
        has_no_key = batch.keys.is_null().to_numpy(zero_copy_only=False)
        numbers[has_no_key] = (first_turn + np.arange(int(np.count_nonzero(has_no_key)))) % partitions
    return numbers


def place_keys(keys: BinaryArray, partitions: int, partitioner: Partitioner) -> NDArray[np.int64]:
    """The partition of each key; that of a null means nothing."""
    if partitioner == "murmur2":
        return murmur2.partition_numbers(keys, partitions)
    return (key_hash.hash_binary(keys) % np.uint64(partitions)).astype(np.int64)
