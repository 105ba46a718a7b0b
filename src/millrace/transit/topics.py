"""The topics of public transport."""

from millrace.topics import Topic
from millrace.transit.events_pb2 import CellCount, VehiclePosition

POSITIONS = Topic("input.vehicle-positions", VehiclePosition, key="vehicle_id")
"""Where each vehicle is, about once a second."""

CELL_COUNTS = Topic("analytics.vehicle-distribution", CellCount, key="geocell")
"""How many vehicles each geocell holds."""
