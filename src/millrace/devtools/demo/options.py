"""What was asked of the demo, and where it keeps things."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

HOST = "127.0.0.1"
WATCHED_JOB = "vehicle-distribution"
"""The one whose hexagons are waited for."""


@dataclass(frozen=True)
class DemoOptions:
    """Everything that can be said to the demo."""

    folder: Path = Path("millrace-data/demo")
    port: int = 8080
    """0: any that is free."""
    scale: float = 1.0
    """How many times the city's usual traffic."""
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
        """Where the log is."""
        return self.home / "log"

    @property
    def log_url(self) -> str:
        """What opens the log."""
        return f"embedded:{self.log}"

    @property
    def state(self) -> Path:
        """What the job remembers."""
        return self.home / "state"

    @property
    def city(self) -> Path:
        """What is known of the city: its routes and stops."""
        return self.home / f"city-{self.seed}"

    @property
    def run(self) -> str:
        """The name of the run."""
        return "demo"

    @property
    def address(self) -> str:
        """Where the map is."""
        return f"http://{HOST}:{self.port}"

    def with_port(self, port: int) -> "DemoOptions":
        """The same, elsewhere."""
        return replace(self, port=port)
