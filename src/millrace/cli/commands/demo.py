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
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the map; 0: any that is free.")] = 8080,
    scale: Annotated[float, typer.Option(min=0.01, help="How many times the city's usual traffic.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Which city: the same seed is the same city.")] = 1,
    on: Annotated[Literal["spark", "local"], typer.Option(help="The runner; local needs no Java.")] = "spark",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what an earlier demo left, and begin anew.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the map in a browser, where there is one.")
    ] = True,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where log and state are kept.")] = Path(
        "millrace-data/demo"
    ),
) -> None:
    """Start a simulated city, the five jobs of public transport over it and the server, and show the way to the map. Ctrl-C ends them all.

    Started again, it goes on from where it stopped.
    """
    from millrace.devtools.demo.demo import run_demo
    from millrace.devtools.demo.options import DemoOptions

    run_demo(
        DemoOptions(require_local(folder, "the folder of the demo"), port, scale, seed, on, fresh, browser),
        sys.stdout,
    )
