"""What the map shows of public transport: one line for each job."""

from millrace.transit.topics import CELL_COUNTS, DELAYS, FINAL_STOPS, FLOWS
from millrace.views import View

VIEWS = (
    View("vehicle-distribution", CELL_COUNTS, "Vehicles", window="30s", every="5s", key="geocell", values=("count",)),
    View("delay-distribution", DELAYS, "Delays", window="5m", every="5s", key="geocell", values=("p50", "p90", "p99", "count")),
    View("final-stop-distribution", FINAL_STOPS, "Final stops", window="5m", every="5s", key="geocell", values=("count",)),
    View("flow-direction", FLOWS, "Flow", window="5m", every="5s", key="geocell", values=("count", "to")),
)
