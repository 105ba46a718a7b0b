"""The right results of vehicle-distribution, in plain Python, a record at a time, without the engine, its
codecs or its windows.

It shares only protobuf and H3 with the job of `verdict.make_job`: windows of 30 s every 5 s, a delay of 1 s,
a lateness of 10 s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from millrace.log import Log
from millrace.log.codecs.event_pb2 import Event
from millrace.transit.events_pb2 import VehiclePosition

SIZE, EVERY, DELAY, LATENESS, AHEAD = 30_000, 5_000, 1_000, 10_000, 3_600_000
RESOLUTION = 9

Window = tuple[int, int, int]
"""A cell, the start of a window, and its end."""


def expected_counts(log: Log, topic: str) -> dict[Window, int]:
    """The last count of each cell and complete window, where it is not 0."""
    latest: dict[tuple[int, str], tuple[int, int, int, int]] = {}
    watermarks = []
    for partition, end in sorted(log.end_offsets(topic).items()):
        clock = None
        for offset, at, ingested_at, position in _read_records(log, topic, partition, end):
            if at > ingested_at + AHEAD:
                continue
            clock = min(at, ingested_at) if clock is None else max(clock, min(at, ingested_at))
            if position is None:
                continue
            vehicle, cell = position
            for start in _window_starts(at):
                if clock - DELAY < start + SIZE + LATENESS:
                    vehicle_window = (start, vehicle)
                    latest[vehicle_window] = max(
                        latest.get(vehicle_window, (at, partition, offset, cell)),
                        (at, partition, offset, cell),
                    )
        watermarks.append(None if clock is None else clock - DELAY)
    if any(watermark is None for watermark in watermarks):
        return {}
    low = min(watermark for watermark in watermarks if watermark is not None)
    return dict(
        Counter(
            (cell, start, start + SIZE) for (start, _), (*_, cell) in latest.items() if start + SIZE <= low
        )
    )


def _window_starts(at: int) -> Iterator[int]:
    """The starts of the windows that contain a time, newest first."""
    start = at - at % EVERY
    while start > at - SIZE:
        yield start
        start -= EVERY


def _read_records(
    log: Log, topic: str, partition: int, end: int
) -> Iterator[tuple[int, int, int, tuple[str, int] | None]]:
    """Offset, event time and ingestion time of each readable record,
    with vehicle and cell where it has a position.
    """
    import h3.api.basic_int as h3

    for first in range(0, end, 10_000):
        records = log.read(topic, partition, first, min(end, first + 10_000))
        for offset, appended, value in zip(
            records.offsets.tolist(), records.timestamps.tolist(), records.values.to_pylist(), strict=True
        ):
            if value is None:
                continue
            event, position = Event(), VehiclePosition()
            try:
                event.ParseFromString(value)
                if not event.details.Unpack(position):
                    continue
            except DecodeError:
                continue
            ingested_at = (
                event.ingestion_timestamp.ToMilliseconds()
                if event.HasField("ingestion_timestamp")
                else appended
            )
            inside = abs(position.latitude) <= 90 and abs(position.longitude) <= 180
            cell = h3.latlng_to_cell(position.latitude, position.longitude, RESOLUTION) if inside else None
            yield (
                offset,
                event.event_timestamp.ToMilliseconds(),
                ingested_at,
                None if cell is None else (position.vehicle_id, cell),
            )
