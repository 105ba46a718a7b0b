"""The jobs of public transport, by name."""

from collections.abc import Callable

from millrace.stream import Job
from millrace.transit.jobs.emergency_stop import emergency_stop
from millrace.transit.jobs.vehicle_distribution import vehicle_distribution

__all__ = ["BUILT_IN", "emergency_stop", "vehicle_distribution"]

BUILT_IN: dict[str, Callable[..., Job]] = {
    "vehicle-distribution": vehicle_distribution,
    "emergency-stop": emergency_stop,
}
"""What `millrace run NAME` finds without a module; each makes the job, with its defaults or with other parameters."""
