"""The header that Confluent's serializers put before each record: a zero byte, the number of a schema (4 bytes), and, before protobuf, which of the schema's messages it is."""

import polars as pl
import pyarrow as pa

from millrace.log.contract import BinaryArray

_HEADER = 5
_MISSING = "does not begin with Confluent's header"
_LONGEST_NUMBER = 5
"""Bytes of a number of 32 bits. A longer one is refused: reading it would take time by the square of its length."""
_DEEPEST = 100
"""How deep messages are nested in a schema at most (protobuf's own limit for what it parses)."""


def without_header(values: BinaryArray, *, indexed: bool) -> tuple[BinaryArray, dict[int, str]]:
    """The records without their headers, and why some have none; those are null. `indexed`: a message's place in its schema follows, as before protobuf.

    Nearly always it is the first message, which is one zero byte: then no record is looked at by itself.
    """
    column = pl.Series(values=values, dtype=pl.Binary)
    usual, length = column.bin.starts_with(b"\0"), _HEADER
    if indexed:
        usual, length = usual & column.bin.slice(_HEADER).bin.starts_with(b"\0"), _HEADER + 1
    stripped = column.bin.slice(length)
    places = (~usual.fill_null(False)).arg_true().to_list()
    if not places:
        return stripped.to_arrow().cast(pa.binary()), {}
    made, bad = stripped.to_list(), dict[int, str]()
    for place in places:
        value = column[place]
        rest = _rest(value) if indexed and value is not None else None
        made[place] = rest
        if rest is None and value is not None:
            bad[place] = _MISSING
    return pa.array(made, pa.binary()), bad


def _rest(value: bytes) -> bytes | None:
    """What follows a list of numbers, each in as many bytes as it needs; the first says how many follow."""
    if value[:1] != b"\0":
        return None
    count, at = _number(value, _HEADER)
    if count is None or not 0 <= count <= _DEEPEST:
        return None
    for _ in range(count):
        number, at = _number(value, at)
        if number is None:
            return None
    return value[at:]


def _number(value: bytes, at: int) -> tuple[int | None, int]:
    """A signed number in protobuf's zigzag form, and where it ends."""
    raw = shift = 0
    for byte in value[at : at + _LONGEST_NUMBER]:
        raw, at, shift = raw | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
    return None, at
