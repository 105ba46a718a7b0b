"""What the map shows of public transport: one line for each job."""

from millrace.transit.topics import CELL_COUNTS
from millrace.views import View

VIEWS = (View("vehicle-distribution", CELL_COUNTS, "Vehicles", window="30s", every="5s", key="geocell", values=("count",)),)
