"""Public transport: what vehicles report, where they are, and the jobs that answer questions about them."""

from millrace.transit.topics import ARRIVALS, CELL_COUNTS, DEPARTURES, DOOR_EVENTS, EMERGENCY_STOPS, POSITIONS, VEHICLE_EVENTS

__all__ = ["ARRIVALS", "CELL_COUNTS", "DEPARTURES", "DOOR_EVENTS", "EMERGENCY_STOPS", "POSITIONS", "VEHICLE_EVENTS"]
