"""`millrace demo`: a live map of a simulated city."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from millrace.cli.commands.options import format_examples
from millrace.values.local_paths import require_local

EXAMPLES = format_examples(
    "millrace demo", "millrace demo --on local --port 9000", "millrace demo --fresh --scale 4 --seed 7"
)


def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port of the map; 0: any free one.")] = 8080,
    scale: Annotated[float, typer.Option(min=0.01, help="The volume of traffic: 1 is a real city.")] = 1.0,
    seed: Annotated[
        int, typer.Option(min=0, help="The city to simulate: equal seeds make equal cities.")
    ] = 1,
    on: Annotated[Literal["spark", "local"], typer.Option(help="The runner; local needs no Java.")] = "spark",
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the data of earlier demos first.")] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the map in a browser, if there is one.")
    ] = True,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="The folder of log and state.")] = Path(
        "millrace-data/demo"
    ),
) -> None:
    """Show a simulated city on a live map, until Ctrl-C.

    It starts the city, the five jobs of public transport and the server of the map. Started again, it
    goes on where it stopped.
    """
    from millrace.devtools.demo.demo import run_demo
    from millrace.devtools.demo.options import DemoOptions

    run_demo(
        DemoOptions(require_local(folder, "the folder of the demo"), port, scale, seed, on, fresh, browser),
        sys.stdout,
    )
