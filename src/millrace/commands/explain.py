"""`millrace explain`: what a job will do."""

from typing import Annotated

import typer

from millrace.commands.options import examples

EXAMPLES = examples("millrace explain vehicle-distribution", "millrace explain jobs.py:words")


def explain(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB", help="module:attribute, file.py:attribute, file.py, or a built-in name.")],
) -> None:
    """Show the graph of jobs, the stages they are cut into, and what, where, when and how of each result."""
    from millrace.explain import explain as explained
    from millrace.jobs import load_all

    typer.echo(explained(load_all(jobs)))
