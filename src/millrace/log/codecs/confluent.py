"""The header of Confluent's serializers: a zero byte, the number of a schema (4 bytes), and, before protobuf,
which of the schema's messages follows.
"""

import polars as pl
import pyarrow as pa

from millrace.log.contract import BinaryArray

_HEADER_BYTES = 5
_NO_HEADER = "does not begin with Confluent's header"
_MAX_VARINT_BYTES = 5
"""Bytes of a 32-bit number. A longer one is refused: reading it takes time by the square of its length."""
_MAX_NESTING = 100
"""How deep messages are nested in a schema at most (protobuf's own limit for what it parses)."""


def strip_headers(values: BinaryArray, *, indexed: bool) -> tuple[BinaryArray, dict[int, str]]:
    """The records without their headers, and errors by row; rows with an error are null. `indexed`: the
    header ends with a message index, as before protobuf.

    Nearly always that is the first message of the schema, one zero byte. Such records are cut as a column,
    and only the others one by one.
    """
    column = pl.Series(values=values, dtype=pl.Binary)
    is_usual, length = column.bin.starts_with(b"\0"), _HEADER_BYTES
    if indexed:
        is_usual, length = (
            is_usual & column.bin.slice(_HEADER_BYTES).bin.starts_with(b"\0"),
            _HEADER_BYTES + 1,
        )
    stripped = column.bin.slice(length)
    rows = (~is_usual.fill_null(False)).arg_true().to_list()
    if not rows:
        return stripped.to_arrow().cast(pa.binary()), {}
    payloads, errors = stripped.to_list(), dict[int, str]()
    for row in rows:
        value = column[row]
        payload = _skip_message_indexes(value) if indexed and value is not None else None
        payloads[row] = payload
        if payload is None and value is not None:
            errors[row] = _NO_HEADER
    return pa.array(payloads, pa.binary()), errors


def _skip_message_indexes(value: bytes) -> bytes | None:
    """The bytes behind a message index: a count, and so many numbers, each a varint."""
    if value[:1] != b"\0":
        return None
    count, position = _read_varint(value, _HEADER_BYTES)
    if count is None or not 0 <= count <= _MAX_NESTING:
        return None
    for _ in range(count):
        number, position = _read_varint(value, position)
        if number is None:
            return None
    return value[position:]


def _read_varint(value: bytes, position: int) -> tuple[int | None, int]:
    """A signed number in protobuf's zigzag form, and where it ends."""
    raw = shift = 0
    for byte in value[position : position + _MAX_VARINT_BYTES]:
        raw, position, shift = raw | (byte & 0x7F) << shift, position + 1, shift + 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
    return None, position
