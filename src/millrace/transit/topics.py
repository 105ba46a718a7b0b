"""The topics of public transport."""

from millrace.topics import Topic
from millrace.transit.events_pb2 import (
    Arrival,
    CellCount,
    DelayDistribution,
    Departure,
    DoorEvent,
    EmergencyStop,
    EventCount,
    Flow,
    VehicleEvent,
    VehiclePosition,
)

POSITIONS = Topic("input.vehicle-positions", VehiclePosition, key="vehicle_id")
"""Where each vehicle is, about once a second."""

ARRIVALS = Topic("input.arrivals", Arrival, key="vehicle_id")
"""Vehicles that came to a stop, and how late they were."""

DEPARTURES = Topic("input.departures", Departure, key="vehicle_id")
"""Vehicles that left a stop."""

DOOR_EVENTS = Topic("input.door-events", DoorEvent, key="vehicle_id")
"""Doors that were opened or closed."""

VEHICLE_EVENTS = Topic("input.vehicle-events", VehicleEvent, key="vehicle_id")
"""What else vehicles report on their way."""

CELL_COUNTS = Topic("analytics.vehicle-distribution", CellCount, key="geocell")
"""How many vehicles each geocell holds."""

DELAYS = Topic("analytics.delay-distribution", DelayDistribution, key="geocell")
"""How late vehicles arrive in each geocell."""

FINAL_STOPS = Topic("analytics.final-stop-distribution", CellCount, key="geocell")
"""How many vehicles are heading to a final stop in each geocell."""

FLOWS = Topic("analytics.flow-direction", Flow, key="geocell")
"""Into which neighbouring cell most vehicles cross."""

EMERGENCY_STOPS = Topic("analytics.emergency-stop", EmergencyStop, key="vehicle_id")
"""Vehicles that came from travelling speed to a standstill in seconds."""

PASSED = Topic("analytics.pass-through", VehiclePosition, key="vehicle_id")
"""Positions that a job passed on as they were, for measuring."""

EVENT_COUNTS = Topic("analytics.event-count", EventCount, key="vehicle_id")
"""How many events each vehicle has sent, for measuring."""
