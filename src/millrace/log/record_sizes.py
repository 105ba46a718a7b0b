"""How large records are: value, key and headers together, with what Kafka's format adds."""

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace.log.contract import BinaryArray, Headers, OutgoingRecords

RECORD_OVERHEAD = 100
"""Bytes around a record that travels alone: head of its batch (61), its lengths and times (at most 36)."""
HEADER_OVERHEAD = 10
"""Bytes around each header."""


def header_size(headers: Headers) -> int:
    """The bytes that the headers of one record need."""
    return sum(len(name.encode()) + len(value) + HEADER_OVERHEAD for name, value in headers)


def record_sizes(batch: OutgoingRecords) -> NDArray[np.int64]:
    """The size of each record, at most a few bytes more than the brokers count."""
    sizes = _byte_lengths(batch.values) + RECORD_OVERHEAD
    if batch.keys is not None:
        sizes += _byte_lengths(batch.keys)
    if batch.headers is not None:
        sizes += np.fromiter(map(header_size, batch.headers), np.int64, len(batch))
    return sizes


def _byte_lengths(column: BinaryArray) -> NDArray[np.int64]:
    lengths = pc.fill_null(pc.binary_length(column), 0)
    sizes: NDArray[np.int64] = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes
