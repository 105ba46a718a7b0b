"""Random numbers as hashes of their subject, so they do not depend on earlier draws."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Bits: TypeAlias = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOW_HALF = np.uint64(0xFFFFFFFF)


def random_bits(seed: int, purpose: int, *counters: Ints | int) -> Bits:
    """64 random bits per element. The counters identify the subject of a draw, `about` the decision."""
    state = _mix(np.array([(seed + purpose * int(_STEP)) % 2**64], np.uint64))
    for counter in counters:
        state = _mix(state ^ np.atleast_1d(np.asarray(counter, np.int64)).view(np.uint64) * _STEP)
    return state


def uniform(seed: int, purpose: int, *counters: Ints | int) -> Floats:
    """Uniform numbers in [0, 1)."""
    return np.asarray((random_bits(seed, purpose, *counters) >> np.uint64(11)) * 2.0**-53, np.float64)


def split_uniform(drawn_bits: Bits) -> tuple[Floats, Floats]:
    """Two uniform numbers of 32 bits each from one draw."""
    return np.asarray((drawn_bits >> np.uint64(32)) * 2.0**-32, np.float64), np.asarray(
        (drawn_bits & _LOW_HALF) * 2.0**-32, np.float64
    )


def interpolate(low: float, high: float, share: Floats) -> Floats:
    """The number at `share` of the distance from low to high."""
    return low + (high - low) * share


def _mix(state: Bits) -> Bits:
    """The last step of splitmix64: each bit of the result depends on each bit of the input."""
    state = (state ^ (state >> np.uint64(30))) * _FIRST_FACTOR
    state = (state ^ (state >> np.uint64(27))) * _SECOND_FACTOR
    return np.asarray(state ^ (state >> np.uint64(31)), np.uint64)
