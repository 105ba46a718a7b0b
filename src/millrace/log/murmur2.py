"""Murmur2, the hash by which Kafka's Java client places a key on a partition, for whole columns of keys.

    h = SEED ^ length
    for each little-endian 4-byte word w:   w *= M; w ^= w >> 24; w *= M;   h = h * M ^ w
    if 1 to 3 bytes are left:               h = (h ^ left) * M              (little-endian, too)
    h ^= h >> 13; h *= M; h ^= h >> 15                                       (all modulo 2**32)

The same as `org.apache.kafka.common.utils.Utils.murmur2`; test vectors come from that client.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace.values.key_hash import bytes_and_offsets

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_LEFT_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
"""The bytes of a last word that belong to the key, by how many are left."""
_SIGN_BIT_CLEARED = np.uint32(0x7FFFFFFF)


def partition_numbers(keys: pa.Array | pa.ChunkedArray, partitions: int) -> NDArray[np.int64]:
    """The partition of each key, as the Java client chooses it; what a null gets means nothing."""
    positive = murmur2(keys) & _SIGN_BIT_CLEARED
    return (positive % np.uint32(partitions)).astype(np.int64)


def murmur2(keys: pa.Array | pa.ChunkedArray) -> NDArray[np.uint32]:
    """The hash of each text or byte string. Java's int is the same 32 bits with a sign."""
    data, offsets = bytes_and_offsets(keys)
    starts, ends, lengths = offsets[:-1], offsets[1:], np.diff(offsets)
    if not len(lengths):
        return np.empty(0, np.uint32)
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    word_at = np.ndarray(len(padded) - 3, "<u4", padded, strides=(1,))
    hashes = lengths.astype(np.uint32) ^ _SEED
    _mix_whole_words(hashes, word_at, starts, lengths)
    _mix_bytes_left(hashes, word_at, ends, lengths & 3)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _mix_whole_words(
    hashes: NDArray[np.uint32], word_at: NDArray[np.uint32], starts: NDArray[Any], lengths: NDArray[Any]
) -> None:
    """Mixes the first word into all keys that have one, then the second, and so on.

    Keys that have no further word drop out. Of keys of 3, 8 and 13 bytes, words 0 and 1 concern the last two,
    word 2 only the last.
    """
    shortest, longest = int(lengths.min()), int(lengths.max())
    rows: slice | NDArray[np.int64] = slice(None)
    for position in range(0, longest - 3, 4):
        if position + 4 > shortest:
            has_word = lengths[rows] >= position + 4
            rows = np.flatnonzero(has_word) if isinstance(rows, slice) else rows[has_word]
        words = word_at[position:][starts[rows]]
        words *= _M
        words ^= words >> np.uint32(24)
        words *= _M
        hashes[rows] = hashes[rows] * _M ^ words


def _mix_bytes_left(
    hashes: NDArray[np.uint32], word_at: NDArray[np.uint32], ends: NDArray[Any], bytes_left: NDArray[Any]
) -> None:
    rows: slice | NDArray[np.int64] = slice(None) if bytes_left.all() else np.flatnonzero(bytes_left)
    count = bytes_left[rows]
    last_bytes = word_at[ends[rows] - count]
    last_bytes &= _LEFT_MASKS[count]
    hashes[rows] = (hashes[rows] ^ last_bytes) * _M
