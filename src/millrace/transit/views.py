"""What the map shows of public transport: one view for each job."""

from millrace.transit.topics import CELL_COUNTS, DELAYS, EMERGENCY_STOPS, FINAL_STOPS, FLOWS
from millrace.views import View

VIEWS = (
    View(
        "vehicle-distribution", CELL_COUNTS, "Vehicles",
        window="30s", every="5s", key="geocell", values=("count",),
        legend="Vehicles per hexagon",
    ),
    View(
        "delay-distribution", DELAYS, "Delays",
        window="5m", every="5s", key="geocell", values=("p50", "p90", "p99", "count"),
        noun="arrivals", legend="Median delay", unit="s",
    ),
    View(
        "final-stop-distribution", FINAL_STOPS, "Final stops",
        window="5m", every="5s", key="geocell", values=("count",),
        noun="vehicles", legend="Vehicles on their way to a hexagon",
    ),
    View(
        "flow-direction", FLOWS, "Flow",
        window="5m", every="5s", key="geocell", values=("count", "to"), kind="arcs",
        noun="crossings", legend="Vehicles that cross, from faint to full",
    ),
    View(
        "emergency-stop", EMERGENCY_STOPS, "Emergency stops",
        window="10s", every="10m", key="vehicle_id",
        values=("deceleration", "speed_difference"), kind="points",
        legend="Hardest deceleration", unit="m/s²",
    ),
)  # fmt: skip
"""Emergency stops are shown for ten minutes."""
