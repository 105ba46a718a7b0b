"""The options of the demo, and the folders that follow from them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

HOST = "127.0.0.1"
WATCHED_JOB = "vehicle-distribution"
"""The job for whose hexagons the start waits."""


@dataclass(frozen=True)
class DemoOptions:
    """The options of `millrace demo`."""

    folder: Path = Path("millrace-data/demo")
    port: int = 8080
    """0: any free port."""
    scale: float = 1.0
    """The volume of traffic: 1 is a real city."""
    seed: int = 1
    on: Literal["spark", "local"] = "spark"
    fresh: bool = False
    browser: bool = True

    @property
    def home(self) -> Path:
        """Each runner has its own log and state, so that one can be tried after the other."""
        return self.folder.absolute() / self.on

    @property
    def log(self) -> Path:
        """The folder of the log."""
        return self.home / "log"

    @property
    def log_url(self) -> str:
        """The URL of the log."""
        return f"embedded:{self.log}"

    @property
    def state(self) -> Path:
        """The state folder of the jobs."""
        return self.home / "state"

    @property
    def city(self) -> Path:
        """The folder of the city's routes and stops."""
        return self.home / f"city-{self.seed}"

    @property
    def run(self) -> str:
        """The name of the run."""
        return "demo"

    @property
    def address(self) -> str:
        """The URL of the map."""
        return f"http://{HOST}:{self.port}"

    def with_port(self, port: int) -> "DemoOptions":
        """The same options with another port."""
        return replace(self, port=port)
