"""`millrace topics`: shows what the log holds."""

from collections.abc import Iterable
from typing import Annotated

import typer

from millrace import durations
from millrace.cli.commands import output
from millrace.cli.commands.options import Config, Json, LogUrl, format_examples, load_settings
from millrace.errors import LogError

app = typer.Typer(help="Look into the log: its topics and their events.", no_args_is_help=True)

TopicArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A topic, such as input.vehicle-positions.")
]


@app.command(
    "list",
    epilog=format_examples("millrace topics list", "millrace topics list --log embedded:other/log --json"),
)
def list_(log: LogUrl = None, json: Json = False, config: Config = None) -> None:
    """List all topics with their sizes. Kafka knows offsets, not records: `millrace topics count` counts
    records.
    """
    from millrace.log import open_log

    opened = open_log(load_settings(config, log_url=log), create=False)
    rows = [
        {
            "topic": info.name,
            "type": info.type_name or None,
            "codec": info.codec,
            "partitions": len(info.partitions),
            "offsets": sum(partition.end - partition.begin for partition in info.partitions),
            "records": _sum_known(partition.records for partition in info.partitions),
            "bytes": _sum_known(partition.bytes for partition in info.partitions),
        }
        for info in map(opened.describe, opened.list_topics())
    ]
    if json:
        output.print_json_lines(rows)
    elif rows:
        output.print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        typer.echo(f"{opened.url} holds no topics yet; `millrace ingest` and `millrace run` create them")


def _sum_known(sizes: Iterable[int | None]) -> int | None:
    """None if one size is unknown."""
    known = list(sizes)
    return None if None in known else sum(size for size in known if size is not None)


@app.command(epilog=format_examples("millrace topics describe input.vehicle-positions"))
def describe(name: TopicArgument, log: LogUrl = None, json: Json = False, config: Config = None) -> None:
    """Show a topic's type, codec, retention and offsets."""
    from millrace.log import open_log

    info = open_log(load_settings(config, log_url=log), create=False).describe(name)
    partitions = [
        {
            "partition": number,
            "begin": part.begin,
            "end": part.end,
            "records": part.records,
            "bytes": part.bytes,
        }
        for number, part in enumerate(info.partitions)
    ]
    sizes = [part.end - part.begin if part.records is None else part.records for part in info.partitions]
    skew = _rounded_skew(sizes)
    retention = None if info.retention is None else durations.format_millis(info.retention)
    if json:
        description = {
            "topic": info.name,
            "type": info.type_name or None,
            "codec": info.codec,
            "envelope": info.envelope,
            "retention": retention,
            "partitioner": info.partitioner,
        }
        output.print_json_lines([{**description, "skew": skew, "partitions": partitions}])
        return
    typer.echo(f"topic      {info.name}")
    typer.echo(f"type       {info.type_name or 'none (bytes)'}")
    typer.echo(f"codec      {info.codec}")
    typer.echo(f"retention  {retention or 'for ever'}")
    typer.echo(f"keys by    {info.partitioner}")
    output.print_table(
        ["partition", "begin", "end", "records", "bytes"], [list(row.values()) for row in partitions]
    )
    typer.echo(f"skew       {output.format_cell(skew)}")


def _rounded_skew(sizes: list[int]) -> float | None:
    from millrace.log.statistics import partition_skew

    value = partition_skew(sizes)
    return None if value is None else round(value, 3)


@app.command(
    epilog=format_examples(
        "millrace topics count input.vehicle-positions", "millrace topics count words --json"
    )
)
def count(name: TopicArgument, log: LogUrl = None, json: Json = False, config: Config = None) -> None:
    """Count a topic's records by partition.

    They are counted one by one, as offsets of Kafka have gaps. The skew is the size of the largest
    partition, divided by the average size.
    """
    from millrace.log import open_log, statistics

    sizes = statistics.count_records(open_log(load_settings(config, log_url=log), create=False), name)
    if json:
        output.print_json_lines(
            [{"topic": name, "records": sum(sizes), "skew": _rounded_skew(sizes), "partitions": sizes}]
        )
        return
    output.print_table(["partition", "records"], list(enumerate(sizes)))
    typer.echo(f"records    {sum(sizes)}\nskew       {output.format_cell(_rounded_skew(sizes))}")


@app.command(epilog=format_examples("millrace topics lag", "millrace topics lag --run millrace --json"))
def lag(
    run: Annotated[str | None, typer.Option(metavar="NAME", help="Only this run.")] = None,
    log: LogUrl = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Show how far runs are behind in the topics that they read.

    It looks at their status records of the last hour.
    """
    from dataclasses import asdict

    from millrace.log import open_log, statistics

    rows = [
        asdict(report)
        for report in statistics.read_lags(open_log(load_settings(config, log_url=log), create=False), run)
    ]
    if json:
        output.print_json_lines(rows)
    elif rows:
        output.print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        typer.echo("no run has written a status within the last hour")


@app.command(
    epilog=format_examples(
        "millrace topics watermarks analytics.vehicle-distribution",
        "millrace topics watermarks alerts --withdraw old-run.1f2e3d",
    )
)
def watermarks(
    name: TopicArgument,
    withdraw: Annotated[
        str | None,
        typer.Option(metavar="WRITER", help="Forget this writer, which will not write here any more."),
    ] = None,
    log: LogUrl = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Show how far each writer of a topic vouches for it.

    Jobs that read it with watermarks.upstream() follow the least of these. A writer is a run and its state.
    One that is gone for good while others still write holds them back, until it is withdrawn.
    """
    from millrace.log import open_log
    from millrace.log.writer_watermarks import describe_newest

    opened = open_log(load_settings(config, log_url=log), create=False)
    opened.describe(name)
    if withdraw is not None:
        if withdraw not in opened.writer_watermarks(name):
            known = ", ".join(opened.writer_watermarks(name))
            remedy = f"name one of {known}" if known else "nobody does, so there is nothing to withdraw"
            raise LogError(f"{withdraw!r} does not vouch for {name!r}; {remedy}")
        opened.withdraw_watermarks(name, withdraw)
    rows = describe_newest(opened.writer_watermarks(name))
    if json:
        output.print_json_lines(rows)
    elif rows:
        output.print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        typer.echo(f"nobody vouches for {name} yet; runs that deliver exactly once do")


@app.command(
    epilog=format_examples(
        "millrace topics tail analytics.vehicle-distribution",
        "millrace topics tail input.vehicle-positions --from-start --max 10 --json",
        "millrace topics tail words --topic jobs.py:WORDS",
    )
)
def tail(
    name: TopicArgument,
    from_start: Annotated[
        bool,
        typer.Option("--from-start", help="Start with the oldest event of the log and not with new ones."),
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="Stop after N events.")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Stop at the end instead of waiting for more.")
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="FILE.PY:NAME",
            help="The Topic in your program; also module:attribute. Needed for your own types.",
        ),
    ] = None,
    log: LogUrl = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Show new events of a topic, until stopped with Ctrl-C."""
    from millrace.cli.tail import follow
    from millrace.log import open_log

    opened = open_log(load_settings(config, log_url=log), create=False)
    events = follow(opened, name, topic=topic, from_start=from_start, limit=limit, wait=not no_wait)
    if json:
        output.print_json_lines(events)
    else:
        for event in events:
            typer.echo("  ".join(f"{field}={output.format_cell(value)}" for field, value in event.items()))
