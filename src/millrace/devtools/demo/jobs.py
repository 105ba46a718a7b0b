"""The jobs of the demo: all of public transport, over a city whose routes end where the city says."""

import os
from pathlib import Path

from millrace.stream import Job
from millrace.transit import jobs

CITY, SEED = "MILLRACE_DEMO_CITY", "MILLRACE_DEMO_SEED"
"""What in the environment of the jobs says which city it is, and in which folder its stops are kept."""
JOBS = (
    "vehicle-distribution",
    "delay-distribution",
    f"{__name__}:final_stop_distribution",
    "flow-direction",
    "emergency-stop",
)


def final_stop_distribution() -> Job:
    """The job, with the stops of the simulated city, which are written down the first time."""
    folder, seed = Path(os.environ[CITY]), int(os.environ[SEED])
    if not (folder / "gtfs").exists():
        _write_stops(folder, seed)
    return jobs.final_stop_distribution(stops=str(folder / "gtfs"))


def _write_stops(folder: Path, seed: int) -> None:
    """A city of a single vehicle has all routes, too."""
    from millrace.ingest.connectors.simulator.city import City, CityPlan

    City(CityPlan(seed=seed, scale=0.001, volume="mean"), start=0, truth=folder).close()
