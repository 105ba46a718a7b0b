"""Events that are all there already, as commands are given them: a recording, a topic or a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.commands.options import settings

if TYPE_CHECKING:
    from millrace.log import Where
    from millrace.runners.replay import Given
    from millrace.stream import Job

Recording = Annotated[Path | None, typer.Option("--recording", metavar="FILE", help="A recording (JSON lines, optionally gzipped).")]
Processor = Annotated[str, typer.Option("--processor", metavar="NAME", help="What understands the recording.")]
TopicName = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="A topic of the log, as far as it is filled now.")]
Table = Annotated[
    Path | None,
    typer.Option("--events", metavar="FILE", help="A table (.parquet, .csv or .jsonl): the fields of the topic's type and event_time."),
]


@dataclass(frozen=True)
class Source:
    """What the command line said of where events are."""

    recording: Path | None
    processor: str
    topic: str | None
    events: Path | None
    log: str | None
    config: Path | None

    def of(self, job: "Job") -> "tuple[Given, Where | None]":
        """The events for a job, and the log they are in, if they are in one."""
        if sum(source is not None for source in (self.recording, self.topic, self.events)) != 1:
            raise typer.BadParameter("say exactly one of --recording, --topic and --events")
        if self.recording is not None:
            from millrace.ingest.bounded import recorded

            return recorded(self.recording, processor=self.processor), None
        if self.topic is not None:
            _check_reads(job, self.topic)
            return self.topic, settings(self.config, log_url=self.log)
        assert self.events is not None, "one of three is given"
        return self.events, None


def one_job(spec: str, config: Path | None) -> "Job":
    """The one job that a command works on, with its parameters in the settings."""
    from millrace.jobs import load

    jobs = load(spec, settings(config).jobs)
    if len(jobs) != 1:
        raise typer.BadParameter(f"{spec} is {len(jobs)} jobs; name one of them", param_hint="JOB")
    return jobs[0]


def _check_reads(job: "Job", topic: str) -> None:
    from millrace.engine.plan import Plan

    known = [read.name for read in Plan.of([job], slots=1).topics]
    if topic not in known:
        raise typer.BadParameter(f"{job.name} does not read {topic!r}; it reads {', '.join(known)}", param_hint="--topic")
