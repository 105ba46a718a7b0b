"""A hash of keys that is the same for ever: in every version, on every platform, in columns and one by one.

Stored state depends on it, and so do the partitions of topics written before keys were placed by murmur2
(`log/partitioning.py`). So its answers are pinned by test vectors.

    hash of 8 bytes w        mix(w ^ SEED)
    hash of bytes            h = SEED ^ length
                             for each little-endian 8-byte word w (the last padded with zeros): h = mix(h ^ w)
                             mix(h)
    hash of a decimal        that of its text without zeros at the end: 1.50 and 1.5 are one key
    hash of several columns  h = SEED; for each column's hash c: h = mix(h ^ c)
    mix(h)                   h ^= h >> 33; h *= A; h ^= h >> 29; h *= B; h ^= h >> 32        (modulo 2**64)
"""

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from millrace.errors import DefinitionError

KEY_GROUPS = 128
"""State is kept and moved by key group; their number never changes."""

_SEED = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x27D4EB2F165667C5)
_A, _B = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)

Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]


def _mix(h: Hashes) -> Hashes:
    h = h ^ (h >> np.uint64(33))
    h = h * _A
    h = h ^ (h >> np.uint64(29))
    h = h * _B
    return h ^ (h >> np.uint64(32))


def bytes_and_offsets(array: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """The bytes of all values as one array, and where in it each value starts, with the end of the last one
    behind.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    is_small = pa.types.is_string(array.type) or pa.types.is_binary(array.type)
    if not is_small and not (pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)):
        array = array.cast(pa.large_binary())
    if not len(array):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32 if is_small else np.int64)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def hash_binary(array: pa.Array | pa.ChunkedArray) -> Hashes:
    """The hash of each text or byte string."""
    data, offsets = bytes_and_offsets(array)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if not len(lengths):
        return np.empty(0, np.uint64)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
    hashes = lengths.astype(np.uint64) ^ _SEED
    shortest, longest = int(lengths.min()), int(lengths.max())
    for position in range(0, longest, 8):
        is_full_word = position + 8 <= shortest
        rows = slice(None) if is_full_word else np.flatnonzero(lengths > position)
        words_here = words[position:][starts[rows]]
        if not is_full_word:
            padding_bits = np.maximum(position + 8 - lengths[rows], 0).astype(np.uint64) * np.uint64(8)
            words_here = (words_here << padding_bits) >> padding_bits
        hashes[rows] = _mix(hashes[rows] ^ words_here)
    hashes = _mix(hashes)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def hash_series(series: pl.Series) -> Hashes:
    """The hash of each value of a column that can be a key."""
    dtype = series.dtype
    if dtype in (pl.String, pl.Binary, pl.Categorical) or isinstance(dtype, pl.Enum):
        text = series if dtype == pl.Binary else series.cast(pl.String)
        return hash_binary(text.to_arrow(compat_level=pl.CompatLevel.oldest()))
    if isinstance(dtype, pl.Decimal):
        return hash_series(_shortest_texts(series, dtype))
    if dtype.is_float():
        words = (series.cast(pl.Float64).fill_null(0.0).to_numpy() + 0.0).view(np.uint64)
    elif dtype.is_integer() or dtype.is_temporal() or dtype == pl.Boolean:
        words = (
            series.to_physical().cast(pl.Int64, wrap_numerical=True).fill_null(0).to_numpy().view(np.uint64)
        )
    else:
        raise DefinitionError(
            f"a key of type {dtype} is not supported; use text, whole numbers, booleans, "
            "times, decimals, or make text of it"
        )
    hashes = _mix(words ^ _SEED)
    if series.null_count():
        hashes[series.is_null().to_numpy()] = _NULL
    return hashes


def _shortest_texts(series: pl.Series, dtype: pl.Decimal) -> pl.Series:
    texts = series.cast(pl.String)
    return texts.str.strip_chars_end("0").str.strip_chars_end(".") if dtype.scale else texts


def hash_columns(frame: pl.DataFrame, columns: list[str]) -> Hashes:
    """The hash of each row's key."""
    if len(columns) == 1:
        return hash_series(frame[columns[0]])
    hashes = np.full(len(frame), _SEED)
    for column in columns:
        hashes = _mix(hashes ^ hash_series(frame[column]))
    return hashes


def hash_values(frame: pl.DataFrame) -> Hashes:
    """A hash below 2**63 of each row, of columns of any type: equal rows have equal ones."""
    flat = frame.select(_flatten(name, dtype) for name, dtype in frame.schema.items())
    return hash_columns(flat, flat.columns) >> np.uint64(1)


def _flatten(name: str, dtype: pl.DataType) -> pl.Expr:
    """A column as one that could be a key."""
    if dtype.is_nested():
        return pl.struct(name).struct.json_encode().alias(name)
    return pl.col(name).cast(pl.String) if dtype.is_decimal() or dtype == pl.Null else pl.col(name)


def key_groups(frame: pl.DataFrame, columns: list[str]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The key group of each row, 0 to 127."""
    return (hash_columns(frame, columns) % np.uint64(KEY_GROUPS)).astype(np.uint8)
