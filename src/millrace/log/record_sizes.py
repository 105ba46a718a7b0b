"""How large records are on their way to a log: value, key and headers together, with what Kafka's format adds."""

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace.log.contract import BinaryArray, Headers, Outgoing

OVERHEAD = 100
"""Bytes around a record that travels alone: the head of its batch (61) and the lengths and times of the record (at most 36)."""
HEADER = 10
"""Bytes around each header."""


def header_size(headers: Headers) -> int:
    """What the headers of one record take."""
    return sum(len(name.encode()) + len(value) + HEADER for name, value in headers)


def record_sizes(batch: Outgoing) -> NDArray[np.int64]:
    """The size of each record, at most a few bytes more than the brokers count."""
    sizes = _lengths(batch.values) + OVERHEAD
    if batch.keys is not None:
        sizes += _lengths(batch.keys)
    if batch.headers is not None:
        sizes += np.fromiter(map(header_size, batch.headers), np.int64, len(batch))
    return sizes


def _lengths(column: BinaryArray) -> NDArray[np.int64]:
    lengths = pc.fill_null(pc.binary_length(column), 0)
    found: NDArray[np.int64] = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found
