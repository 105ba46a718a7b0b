"""Which partition each record goes to."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace.errors import LogError
from millrace.log.contract import OutgoingRecords
from millrace.values import key_hash


def split_by_partition(
    topic: str, batch: OutgoingRecords, partitions: int, first_turn: int
) -> Iterator[tuple[int, OutgoingRecords]]:
    """The part of a batch that goes to each partition, in the batch's order; records without a key are dealt out from `turn` on."""
    partition_of_row = _partition_numbers(topic, batch, partitions, first_turn)
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


def _partition_numbers(topic: str, batch: OutgoingRecords, partitions: int, first_turn: int) -> NDArray[Any]:
    if batch.partitions is not None:
        lowest, highest = int(batch.partitions.min(initial=0)), int(batch.partitions.max(initial=0))
        if lowest < 0 or highest >= partitions:
            invalid = lowest if lowest < 0 else highest
            raise LogError(
                f"{topic} has partitions 0 to {partitions - 1}, but a record is meant for {invalid}; nothing was appended"
            )
        return batch.partitions
    if batch.keys is None:
        return (first_turn + np.arange(len(batch))) % partitions
    numbers = (key_hash.hash_binary(batch.keys) % np.uint64(partitions)).astype(np.int64)
    if batch.keys.null_count:
        has_no_key = batch.keys.is_null().to_numpy(zero_copy_only=False)
        numbers[has_no_key] = (first_turn + np.arange(int(np.count_nonzero(has_no_key)))) % partitions
    return numbers
