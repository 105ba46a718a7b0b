"""Records as the tests of codecs make them."""

from typing import Any

import numpy as np
import pyarrow as pa

from log.shapes import shape
from millrace.log import Records
from millrace.log.codecs.event_pb2 import Event
from millrace.topics import Topic

Position, Everything = shape("Position"), shape("Everything")
POSITIONS = Topic("input.positions", Position, "vehicle")
APPENDED = 1_700_000_000_500


def records(values: list[bytes | None], *, first: int = 0) -> Records:
    count = len(values)
    offsets = np.arange(first, first + count, dtype=np.int64)
    return Records(
        offsets, np.full(count, APPENDED), pa.nulls(count, pa.binary()), pa.array(values, pa.binary())
    )


def sealed(message: Any, event_time: int | None = 1_000, ingestion_time: int | None = 2_000) -> bytes:
    """An event as the protobuf package writes it."""
    event = Event()
    if event_time is not None:
        event.event_timestamp.FromMilliseconds(event_time)
    if ingestion_time is not None:
        event.ingestion_timestamp.FromMilliseconds(ingestion_time)
    event.details.Pack(message)
    return event.SerializeToString()


def sent(outgoing: Any, *, first: int = 0) -> Records:
    return records(outgoing.values.to_pylist(), first=first)
