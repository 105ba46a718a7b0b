"""Messages of librdkafka as columns, without a step of Python for each.

librdkafka returns addresses of messages. A message is a struct, `rd_kafka_message_t`, whose layout is part
of the library's interface (on machines with 8-byte addresses):

    err 0   rkt 8   partition 16   payload 24   len 32   key 40   key_len 48   offset 56   _private 64

So numpy reads the structs as rows of an array, at once, from wherever they are in memory. Payloads are
elsewhere: they lie in the responses that brokers sent, one after another with keys and lengths in between.
Arrow copies them from there. It takes every second value of an array whose offsets are the addresses at which
payloads begin and end:

    bytes          ..k1aaaa..k2bb...     a response
    offsets          4   8   12 14       relative to the first address; values are aaaa, ..k2, bb
    take 0, 2      aaaa bb               the payloads, joined

Two things are in no public field, and looked up where they are usually found:

- The append time is read from where the library keeps it, behind the public fields. In each batch some are
  compared with what the library's function returns. If one differs, that function is called for each message.
- Few records have headers. In Kafka's format the number of headers is the byte behind the payload, so the
  library's function is called only where that is not zero, and where the payload is empty: then its address
  is not one in the response. Of a future version of librdkafka, every message is asked.
"""

import ctypes
from collections import deque
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace.errors import LogError
from millrace.log.contract import BinaryArray, Headers, Records
from millrace.log.kafka.librdkafka import Library

Addresses = NDArray[np.int64]

MESSAGE = np.dtype(
    {
        "names": ["err", "payload", "len", "key", "key_len", "offset", "timestamp"],
        "formats": ["<i4", "<i8", "<i8", "<i8", "<i8", "<i8", "<i8"],
        "offsets": [0, 24, 32, 40, 48, 56, 96],
        "itemsize": 104,
    }
)
"""What is read of a message. `timestamp` is not public; see above."""
_WORD = 8
_PAGE = 4096
"""The next byte in memory may not be ours only where a page begins."""
TOO_LARGE = "a range of records holds more than 2 GiB; read fewer at a time (run.max_events_per_batch)"


class Event(NamedTuple):
    """What librdkafka reports among messages: the end of a partition, or an error."""

    code: int
    text: str
    offset: int


def split_events(library: Library, addresses: Addresses) -> tuple[list[Event], Addresses, NDArray[Any]]:
    """The events among messages; the addresses and structs of those that are records."""
    rows = _read_structs(addresses)
    if not rows["err"].any():
        return [], addresses, rows
    is_event = rows["err"] != 0
    events = [
        Event(int(row["err"]), _text(library.rd_kafka_message_errstr(address)), int(row["offset"]))
        for row, address in zip(rows[is_event], addresses[is_event].tolist(), strict=True)
    ]
    return events, addresses[~is_event], rows[~is_event]


def to_records(library: Library, addresses: Addresses, rows: NDArray[Any]) -> Records:
    """Messages as columns that no longer depend on them."""
    if not len(rows):
        return Records.empty()
    return Records(
        rows["offset"].copy(),
        _timestamps(library, addresses, rows["timestamp"]),
        _to_binary(rows["key"], rows["key_len"]),
        _to_binary(rows["payload"], rows["len"]),
        _headers(library, addresses, rows),
    )


def destroy(library: Library, addresses: Addresses) -> None:
    """Returns messages to the library."""
    deque(map(library.rd_kafka_message_destroy, addresses.tolist()), maxlen=0)


class _Memory:
    """Bytes of this process as an array that numpy does not own."""

    def __init__(self, address: int, words: int, typestr: str) -> None:
        self.__array_interface__ = {
            "data": (address, True), "shape": (words,), "typestr": typestr, "version": 3
        }  # fmt: skip


def _read_structs(addresses: Addresses) -> NDArray[Any]:
    """The messages at some addresses, as rows of an array."""
    first = int(addresses.min())
    words = (int(addresses.max()) - first + MESSAGE.itemsize) // _WORD
    memory = np.asarray(_Memory(first, words, "<i8"))
    offsets = (addresses - first) >> 3
    word_rows = memory[offsets[:, None] + np.arange(MESSAGE.itemsize // _WORD)]
    rows: NDArray[Any] = word_rows.view(MESSAGE)[:, 0]
    return rows


def _timestamps(library: Library, addresses: Addresses, found: NDArray[np.int64]) -> NDArray[np.int64]:
    for row in {0, len(found) // 2, len(found) - 1}:
        if library.rd_kafka_message_timestamp(int(addresses[row]), None) != found[row]:
            stamps = map(library.rd_kafka_message_timestamp, addresses.tolist(), repeat(None))
            return np.fromiter(stamps, np.int64, len(addresses))
    return found.copy()


def _to_binary(starts: Addresses, lengths: NDArray[np.int64]) -> BinaryArray:
    """The bytes at some addresses, copied; null where the address is 0."""
    is_null = starts == 0
    if is_null.all():
        return pa.nulls(len(starts), pa.binary())
    has_nulls = bool(is_null.any())
    if has_nulls:
        starts, lengths = np.where(is_null, starts.max(), starts), np.where(is_null, 0, lengths)
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise LogError(TOO_LARGE)
    return pa.Array.from_buffers(
        pa.binary(),
        len(starts),
        [
            pa.array(~is_null).buffers()[1] if has_nulls else None,
            pa.py_buffer(offsets.astype(np.int32)),
            _copy(starts, lengths, int(offsets[-1])),
        ],
    )


def _copy(starts: Addresses, lengths: NDArray[np.int64], total: int) -> Any:
    """The bytes at some addresses, joined; `total`: how many these are."""
    count, first = len(starts), int(starts.min())
    ends = starts + lengths
    bounds = np.empty(2 * count + 1, np.int64)
    bounds[:-1:2], bounds[1::2] = starts - first, ends - first
    bounds[-1] = bounds[0] + 2 * total  # Arrow allocates by the mean length, (last - first) / count
    memory = pa.foreign_buffer(first, max(int(bounds[-1]), int(ends.max()) - first))
    pieces = pa.Array.from_buffers(pa.large_binary(), 2 * count, [None, pa.py_buffer(bounds), memory])
    return pieces.take(pa.array(np.arange(0, 2 * count, 2))).buffers()[2]


def _headers(library: Library, addresses: Addresses, rows: NDArray[Any]) -> list[Headers] | None:
    """The headers of each message, or None if none has any."""
    found: dict[int, Headers] = {}
    handle = ctypes.c_void_p()
    reference = ctypes.byref(handle)
    may_have = _find_headers(rows["payload"], rows["len"]) if library.is_known_version else range(len(rows))
    for row in may_have:
        if not library.rd_kafka_message_headers(int(addresses[row]), reference):
            found[row] = _read_headers(library, handle)
    return [found.get(row, ()) for row in range(len(rows))] if found else None


def _find_headers(payloads: Addresses, lengths: NDArray[np.int64]) -> list[int]:
    """The messages that may have headers: those with an empty payload, or with no zero behind it.

    Messages written before Kafka 0.11 have no headers. Behind the last of them may be nothing at all, so
    no byte is read that could be on the next page of memory.
    """
    ends = payloads + lengths
    may_have = (lengths == 0) | (ends % _PAGE == 0)
    is_known = ~may_have
    known_ends = ends[is_known]
    if len(known_ends):
        first = int(known_ends.min())
        memory = np.asarray(_Memory(first, int(known_ends.max()) - first + 1, "|u1"))
        may_have[is_known] = memory[known_ends - first] != 0
    rows: list[int] = np.flatnonzero(may_have).tolist()
    return rows


def _read_headers(library: Library, handle: ctypes.c_void_p) -> Headers:
    """The headers that the library has listed at `handle`."""
    name, value, size = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
    parts = (ctypes.byref(name), ctypes.byref(value), ctypes.byref(size))
    headers: list[tuple[str, bytes]] = []
    while not library.rd_kafka_header_get_all(handle, len(headers), *parts):
        content = ctypes.string_at(value.value, size.value) if value.value else b""
        headers.append((_text(name.value), content))
    return tuple(headers)


def _text(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")
