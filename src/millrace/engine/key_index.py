"""Where the rows of a key are in a frame of very many keys.

A batch that touches a thousand of a million keys must not look at a million rows. So the hashes of a large
frame's keys are sorted once, and each key is then found by bisection. Frames of state do not change, and
batches share those of most of its keys, so an index serves many batches.

The hash is that of polars, which is the same within a process only: an index is never stored. Rows of other
keys with an equal hash are found, too, so the caller compares keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from millrace.patterns.cep.key_order import join_ranges

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """The places of rows by the hash of their key."""

    hashes: Hashes
    """In order."""
    places: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, frame: pl.DataFrame, keys: Sequence[str]) -> KeyIndex:
        """The index of a frame."""
        hashes = _hash(frame, keys)
        order = np.argsort(hashes)
        return cls(hashes[order], order.astype(np.uint32))

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.hashes.nbytes + self.places.nbytes

    def find(self, keys: pl.DataFrame) -> Places:
        """The places of the rows that may have one of some keys, in order."""
        wanted = np.unique(_hash(keys, keys.columns))
        first = np.searchsorted(self.hashes, wanted)
        lengths = np.searchsorted(self.hashes, wanted, side="right") - first
        return np.sort(self.places[join_ranges(first, lengths)].astype(np.int64))


def _hash(frame: pl.DataFrame, keys: Sequence[str]) -> Hashes:
    hashes: Hashes = frame.select(keys).hash_rows().to_numpy()
    return hashes
