"""The options of commands that work on bounded events: a recording, a topic as far as it is filled, or a
table.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.commands.options import load_settings

if TYPE_CHECKING:
    from millrace.log import LogAddress
    from millrace.runners.replay import ReplayInput
    from millrace.stream import Job

RecordingOption = Annotated[
    Path | None,
    typer.Option("--recording", metavar="FILE", help="A recording (JSON lines, optionally gzipped)."),
]
ProcessorOption = Annotated[
    str,
    typer.Option("--processor", metavar="NAME", help="The processor that turns the recording into events."),
]
TopicOption = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", help="A topic of the log, up to its present end."),
]
TableOption = Annotated[
    Path | None,
    typer.Option(
        "--events",
        metavar="FILE",
        help="A table (.parquet, .csv or .jsonl) with the fields of the topic's type and event_time.",
    ),
]


@dataclass(frozen=True)
class EventSource:
    """The options of one command line; exactly one of `recording`, `topic` and `events` must be set."""

    recording: Path | None
    processor: str
    topic: str | None
    events: Path | None
    log: str | None
    config: Path | None

    def resolve(self, job: "Job") -> "tuple[ReplayInput, LogAddress | None]":
        """The events for a job, and the log that holds them, if one does."""
        if sum(source is not None for source in (self.recording, self.topic, self.events)) != 1:
            raise typer.BadParameter("name the events by exactly one of --recording, --topic and --events")
        if self.recording is not None:
            return _read_recording(self.recording, self.processor), None
        if self.topic is not None:
            _check_reads(job, self.topic)
            return self.topic, load_settings(self.config, log_url=self.log)
        assert self.events is not None, "one of the three is set"
        return self.events, None

    def with_file(self, file: Path | None) -> "EventSource":
        """The same with a file, which is a recording or a table by its name and first line."""
        if file is None:
            return self
        if any(source is not None for source in (self.recording, self.topic, self.events)):
            raise typer.BadParameter(
                f"{file} is named besides --recording, --topic or --events; name only one of them",
                param_hint="FILE",
            )
        return replace(self, recording=file) if is_recording(file) else replace(self, events=file)


def is_recording(file: Path) -> bool:
    """Decides by the ending, and for `.jsonl`, which recordings and tables share, by the first line."""
    if file.suffix in (".parquet", ".csv"):
        return False
    if file.suffix != ".jsonl":
        return True
    try:
        with file.open("rb") as opened:
            first = opened.readline(1 << 20)
    except OSError:
        return False
    return b'"received"' in first and b'"payload"' in first


def _read_recording(path: Path, processor: str) -> "ReplayInput":
    from millrace.ingest.connectors.recording_frames import read_recording

    recorded = read_recording(path, processor=processor)
    if skipped := recorded.describe_skipped():
        typer.echo(f"{path}: {skipped}", err=True)
    return dict(recorded.frames)


def load_one_job(spec: str, config: Path | None) -> "Job":
    """The one job of a command, made with its parameters from the settings."""
    from millrace.graph.find_jobs import load_jobs

    jobs = load_jobs(spec, load_settings(config).jobs)
    if len(jobs) != 1:
        raise typer.BadParameter(f"{spec} is {len(jobs)} jobs; name one of them", param_hint="JOB")
    return jobs[0]


def _check_reads(job: "Job", topic: str) -> None:
    from millrace.engine.plan import Plan

    topics = [read.name for read in Plan.of([job], slots=1).topics]
    if topic not in topics:
        raise typer.BadParameter(
            f"{job.name} does not read {topic!r}; it reads {', '.join(topics)}", param_hint="--topic"
        )
