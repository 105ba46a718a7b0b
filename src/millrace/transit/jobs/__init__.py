"""The jobs of public transport, by name."""

from collections.abc import Callable

from millrace.stream import Job
from millrace.transit.jobs.delay_distribution import delay_distribution
from millrace.transit.jobs.emergency_stop import emergency_stop, emergency_stop_in_sql
from millrace.transit.jobs.final_stop_distribution import final_stop_distribution
from millrace.transit.jobs.flow_direction import flow_direction
from millrace.transit.jobs.plain import event_count, pass_through
from millrace.transit.jobs.vehicle_distribution import vehicle_distribution

__all__ = [
    "BUILT_IN",
    "delay_distribution",
    "emergency_stop",
    "emergency_stop_in_sql",
    "event_count",
    "final_stop_distribution",
    "flow_direction",
    "pass_through",
    "vehicle_distribution",
]

BUILT_IN: dict[str, Callable[..., Job]] = {
    "vehicle-distribution": vehicle_distribution,
    "delay-distribution": delay_distribution,
    "final-stop-distribution": final_stop_distribution,
    "flow-direction": flow_direction,
    "emergency-stop": emergency_stop,
    "pass-through": pass_through,
    "event-count": event_count,
}
"""What `millrace run NAME` finds without a module; each makes the job, with its defaults or with the
parameters of `[jobs.NAME]` in millrace.toml.
"""
