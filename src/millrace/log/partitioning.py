"""Which partition each record goes to."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace.errors import LogError
from millrace.log.contract import Outgoing
from millrace.values import key_hash


def split(topic: str, batch: Outgoing, partitions: int, turn: int) -> Iterator[tuple[int, Outgoing]]:
    """The part of a batch that goes to each partition, in the batch's order; records without a key are dealt out from `turn` on."""
    numbers = _numbers(topic, batch, partitions, turn)
    order = np.argsort(numbers.astype(np.int16), kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=partitions)).tolist()
    rows = pa.array(order)
    values, keys = batch.values.take(rows), None if batch.keys is None else batch.keys.take(rows)
    for partition, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            headers = (
                None if batch.headers is None else [batch.headers[row] for row in order[start:end].tolist()]
            )
            yield (
                partition,
                Outgoing(
                    values.slice(start, end - start),
                    None if keys is None else keys.slice(start, end - start),
                    headers,
                ),
            )


def _numbers(topic: str, batch: Outgoing, partitions: int, turn: int) -> NDArray[Any]:
    if batch.partitions is not None:
        least, most = int(batch.partitions.min(initial=0)), int(batch.partitions.max(initial=0))
        if least < 0 or most >= partitions:
            wrong = least if least < 0 else most
            raise LogError(
                f"{topic} has partitions 0 to {partitions - 1}, but a record is meant for {wrong}; nothing was appended"
            )
        return batch.partitions
    if batch.keys is None:
        return (turn + np.arange(len(batch))) % partitions
    numbers = (key_hash.hash_binary(batch.keys) % np.uint64(partitions)).astype(np.int64)
    if batch.keys.null_count:
        keyless = batch.keys.is_null().to_numpy(zero_copy_only=False)
        numbers[keyless] = (turn + np.arange(int(np.count_nonzero(keyless)))) % partitions
    return numbers
