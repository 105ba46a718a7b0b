"""Public transport: what vehicles report, where they are, and the jobs that answer questions about them."""

from millrace.transit.topics import (
    ARRIVALS,
    CELL_COUNTS,
    DELAYS,
    DEPARTURES,
    DOOR_EVENTS,
    EMERGENCY_STOPS,
    FINAL_STOPS,
    FLOWS,
    POSITIONS,
    VEHICLE_EVENTS,
)

__all__ = [
    "ARRIVALS",
    "CELL_COUNTS",
    "DELAYS",
    "DEPARTURES",
    "DOOR_EVENTS",
    "EMERGENCY_STOPS",
    "FINAL_STOPS",
    "FLOWS",
    "POSITIONS",
    "VEHICLE_EVENTS",
]
