"""When messages arrive: mostly after some tens of milliseconds, sometimes after an outage of the vehicle's
link, at times twice.

During an outage a vehicle goes on measuring. Afterwards it sends the messages of the outage in order, within
seconds. So lateness is a saw-tooth, and the share of events later than `x` is the part of outages beyond `x`.
The tables are fitted to real arrivals.
"""

from dataclasses import dataclass

import numpy as np

from millrace.ingest.connectors.simulator import chance
from millrace.ingest.connectors.simulator.chance import Floats, Ints

DUPLICATE_SHARE = 0.0199
"""The share of messages that are sent twice."""
_FAST_CLOCK_SHARE = 0.006
"""The share of vehicles whose clock is some seconds fast."""

_LAG_QUANTILES = (
    (0.0, 0.001, 0.0106, 0.053, 0.106, 0.264, 0.53, 0.79, 0.845, 0.897, 0.948, 0.972, 0.995, 1.0),
    (4, 6, 23, 31, 36, 47, 69, 116, 148, 249, 402, 640, 853, 1000),
)
"""Quantiles of the delay of a working link, in milliseconds."""


@dataclass(frozen=True)
class _Outages:
    """At most one outage per `slot` milliseconds, with probability `often`, and the quantiles of its length
    in milliseconds.
    """

    purpose: int
    slot: int
    probability: float
    length_shares: tuple[float, ...]
    lengths: tuple[int, ...]


_OUTAGES = (
    _Outages(
        20, 60_000, 0.6,
        (0.0, 0.25, 0.333, 0.517, 0.805, 0.939, 1.0),
        (1_000, 1_500, 2_000, 3_000, 5_000, 8_000, 12_000),
    ),
    _Outages(
        23, 600_000, 0.26,
        (0.0, 0.333, 0.715, 0.88, 0.943, 0.954, 0.963, 0.973, 1.0),
        (12_000, 20_000, 30_000, 45_000, 60_000, 90_000, 120_000, 150_000, 153_000),
    ),
)  # fmt: skip
"""Short outages, which every vehicle has every few minutes, and long ones."""

_MAX_FLUSH = 3_000.0


class Links:
    """The links of all vehicles of a city, and their clocks."""

    def __init__(self, seed: int, vehicles: int) -> None:
        self.seed = seed
        numbers = np.arange(vehicles)
        is_fast_draw, ahead_draw = chance.split_uniform(chance.random_bits(seed, 30, numbers))
        self.clock_ahead = np.where(
            is_fast_draw < _FAST_CLOCK_SHARE, 1000 + (ahead_draw**2 * 9_000).astype(np.int64), 0
        )
        """Milliseconds by which each clock is fast."""

    def arrivals(self, vehicle: Ints, time: Ints) -> tuple[Ints, Ints]:
        """The time of arrival of each message, and how many copies arrive."""
        lag_draw, duplicate_draw = chance.split_uniform(chance.random_bits(self.seed, 31, vehicle, time))
        arrival = time + _link_lag(lag_draw)
        for outages in _OUTAGES:
            arrival = np.maximum(arrival, self._delayed_arrival(outages, vehicle, time))
        return np.ceil(arrival).astype(np.int64), 1 + (
            duplicate_draw < DUPLICATE_SHARE / (1 - DUPLICATE_SHARE)
        )

    def _delayed_arrival(self, outages: _Outages, vehicle: Ints, time: Ints) -> Floats:
        """When a message is sent after an outage; without an outage, its own time."""
        slot = time // outages.slot
        outage_draw, length_draw = chance.split_uniform(
            chance.random_bits(self.seed, outages.purpose, vehicle, slot)
        )
        start_draw, flush_draw = chance.split_uniform(
            chance.random_bits(self.seed, outages.purpose + 1, vehicle, slot)
        )
        length = np.interp(length_draw, outages.length_shares, outages.lengths)
        flush = np.minimum(20.0 * np.exp(5 * flush_draw), np.minimum(length * 0.4, _MAX_FLUSH))
        start = slot * outages.slot + start_draw * (outages.slot - length - flush)
        elapsed = time - start
        is_delayed = (outage_draw < outages.probability) & (elapsed >= 0) & (elapsed < length + flush)
        return np.where(
            is_delayed, start + length + flush * elapsed / (length + flush) + _link_lag(start_draw), time
        )


def _link_lag(share: Floats) -> Floats:
    return np.interp(share, *_LAG_QUANTILES)
