"""The course of a day: local time, the number of events, and the density of traffic."""

from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np

from millrace.ingest.connectors.simulator.chance import Floats, Ints

_HOUR = 3_600_000
DAY = 24 * _HOUR

MEAN_EVENTS_PER_SECOND, PEAK_EVENTS_PER_SECOND = 676.0, 1122.0
"""Events per second of one city: the mean of the day, and its busiest minute."""

_CURVE = """
00:00 274    00:30 211    01:00 171    01:30 133    02:00 78     02:30 37     03:00 19     03:30 22
03:58 23     04:00 6.7    04:01 6.7    04:03 35     04:30 63     04:45 94     05:00 191    05:30 442
06:00 664    06:30 862    07:00 977    07:30 1035   08:04 1081   08:30 1035   09:00 1019   09:30 932
10:00 874    10:30 855    11:00 844    11:30 856    12:00 842    12:30 865    13:00 873    13:30 873
14:00 899    14:30 973    15:00 1021   15:30 1053   16:07 1122   16:30 1099   17:00 1070   17:30 1022
18:00 942    18:30 867    19:00 802    19:30 791    20:00 750    20:30 712    21:00 659    21:30 609
22:00 552    22:30 516    23:00 477    23:30 387    24:00 274
"""
"""Events per second by local time, interpolated linearly: roughly a working day in Helsinki."""


@cache
def _curve() -> tuple[Floats, Floats]:
    words = _CURVE.split()
    minutes = [int(word[:2]) * 60.0 + int(word[3:]) for word in words[::2]]
    return np.array(minutes) * 60_000, np.array([float(word) for word in words[1::2]])


def events_per_second(times: Ints) -> Floats:
    """Events per second of one city at these times of day."""
    time_of_day, rate = _curve()
    return np.interp(local_time(times) % DAY, time_of_day, rate)


def traffic_load(times: Ints) -> Floats:
    """The density of traffic, from 0 at night to 1 in the rush hour."""
    return events_per_second(times) / PEAK_EVENTS_PER_SECOND


def local_time(times: Ints) -> Ints:
    """Milliseconds since 1970-01-01 00:00 in the local time of Helsinki."""
    switches, offsets = _utc_offsets()
    return times + offsets[np.searchsorted(switches, times, side="right")]


@cache
def _utc_offsets() -> tuple[Ints, Ints]:
    """When summer time begins and ends, and the offsets from UTC before, between and after: the rule of the
    EU.
    """
    switches = [_last_sunday(year, month) for year in range(1997, 2100) for month in (3, 10)]
    return np.array(switches), np.array([2 * _HOUR, *([3 * _HOUR, 2 * _HOUR] * (len(switches) // 2))])


def _last_sunday(year: int, month: int) -> int:
    last = datetime(year, month, 31, 1, tzinfo=UTC)
    return int((last - timedelta(days=last.isoweekday() % 7)).timestamp()) * 1000
