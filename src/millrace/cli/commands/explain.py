"""`millrace explain`: shows what a job will do, and what it did with some events."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.commands import event_source
from millrace.cli.commands.options import Config, LogUrl, format_examples, load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millrace.config import Settings
    from millrace.devtools.timeline.seen import Timeline
    from millrace.graph.explain import SlotLayout
    from millrace.stream import Job

EXAMPLES = format_examples(
    "millrace explain vehicle-distribution",
    "millrace explain jobs.py:words --timeline --events words.csv --key mill",
    "millrace explain vehicle-distribution --timeline --recording hsl.jsonl.gz --svg picture.svg",
)

Jobs = Annotated[
    list[str],
    typer.Argument(metavar="JOB", help="module:attribute, file.py:attribute, file.py, or a built-in name."),
]
Draw = Annotated[
    bool,
    typer.Option("--timeline", help="Run one job over events, and draw event time against processing time."),
]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="KEY", help="Draw only this key: VALUE, or COLUMN=VALUE,… for a key of several columns."
    ),
]
OutputTopic = Annotated[
    str | None,
    typer.Option(metavar="TOPIC", help="The output to draw. Default: the first one with windows."),
]
Since = Annotated[
    str, typer.Option(metavar="TIME", help="Draw from this time after the first event, such as 10m.")
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Draw until this time after the first event.")
]
SvgFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the drawing to an SVG file and not as text.")
]


def explain(
    jobs: Jobs,
    timeline: Draw = False,
    recording: event_source.RecordingOption = None,
    processor: event_source.ProcessorOption = "hsl",
    topic: event_source.TopicOption = None,
    events: event_source.TableOption = None,
    key: Key = None,
    output: OutputTopic = None,
    since: Since = "0s",
    until: Until = None,
    svg: SvgFile = None,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Show the graph of jobs, and how a run divides their work.

    Of each result it shows the what, where, when and how, and the stages that jobs are cut into, with the
    slots and tasks of a run.
    """
    source = event_source.EventSource(recording, processor, topic, events, log, config)
    if timeline:
        _draw(jobs, source, svg, key=key, topic=output, since=since, until=until)
        return
    if any(option is not None for option in (recording, topic, events, key, output, svg)):
        raise typer.BadParameter(
            "events, --svg and the like are for a timeline; add --timeline, or leave them out"
        )
    from millrace.graph.explain import explain as to_text
    from millrace.graph.find_jobs import load_all_jobs

    settings = load_settings(config)
    found = load_all_jobs(jobs, settings.jobs)
    typer.echo(to_text(found, _plan_layout(found, settings)))


def _plan_layout(jobs: "Sequence[Job]", settings: "Settings") -> "SlotLayout":
    """How a run with these settings and a new state folder divides its work."""
    from millrace.graph import depth
    from millrace.graph.explain import SlotLayout
    from millrace.runners.slots import choose_local_slots, choose_spark_layout

    if settings.run.on == "local":
        return SlotLayout(choose_local_slots(settings), tasks=1, readers=1)
    from millrace.runners.spark.session import count_cores

    stages = max((depth(node) for job in jobs for node in job.operator_ids), default=0)
    cores = count_cores(settings.spark)
    slots, partitions = choose_spark_layout(settings, None, cores=cores, depth=stages)
    return SlotLayout(slots, tasks=min(slots, partitions), readers=cores)


def _draw(specs: list[str], source: event_source.EventSource, svg: Path | None, **options: Any) -> None:
    from millrace.devtools.timeline import record, to_svg
    from millrace.errors import InputError
    from millrace.values.local_paths import require_local

    if svg is not None:
        require_local(svg, "the picture")
    if len(specs) != 1:
        raise typer.BadParameter("--timeline draws one job; name one", param_hint="JOB")
    job = event_source.load_one_job(specs[0], source.config)
    events, log = source.resolve(job)
    timeline = record(job, events, log=log, **options)
    if svg is None:
        _print_timeline(timeline)
        return
    try:
        svg.write_text(to_svg(timeline), encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{svg} cannot be written ({error.strerror or error}); check the folder and its permissions"
        ) from error
    typer.echo(f"{len(timeline.dots)} events and {len(timeline.panes)} panes in {svg}")


def _print_timeline(timeline: "Timeline") -> None:
    from rich.console import Console
    from rich.text import Text

    from millrace.devtools.timeline.text import strip_styles, to_text

    if not sys.stdout.isatty():
        typer.echo(strip_styles(to_text(timeline)))
        return
    console = Console()
    for line in to_text(timeline, width=console.width):
        console.print(Text.assemble(*line), soft_wrap=True)
