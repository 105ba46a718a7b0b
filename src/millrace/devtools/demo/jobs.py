"""The jobs of the demo: those of public transport, with the final stops of the simulated city."""

import os
from pathlib import Path

from millrace.stream import Job
from millrace.transit import jobs

CITY, SEED = "MILLRACE_DEMO_CITY", "MILLRACE_DEMO_SEED"
"""Environment variables of the jobs: the folder of the city's stops, and the seed of the city."""
JOBS = (
    "vehicle-distribution",
    "delay-distribution",
    f"{__name__}:final_stop_distribution",
    "flow-direction",
    "emergency-stop",
)


def final_stop_distribution() -> Job:
    """The job with the stops of the simulated city, whose file is written the first time."""
    folder, seed = Path(os.environ[CITY]), int(os.environ[SEED])
    if not (folder / "gtfs").exists():
        _write_stops(folder, seed)
    return jobs.final_stop_distribution(stops=str(folder / "gtfs"))


def _write_stops(folder: Path, seed: int) -> None:
    """Writes them from a city with a single vehicle, which has all routes."""
    from millrace.ingest.connectors.simulator.city import City, CityPlan

    City(CityPlan(seed=seed, scale=0.001, volume="mean"), start=0, truth=folder).close()
