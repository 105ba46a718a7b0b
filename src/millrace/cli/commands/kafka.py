"""`millrace kafka`: starts and stops brokers on this machine."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import Json, format_examples

if TYPE_CHECKING:
    import threading

    from millrace.devtools.brokers import Cluster

app = typer.Typer(
    help="Run real Kafka brokers on this machine, for development.",
    no_args_is_help=True,
)

BrokerCount = Annotated[int, typer.Option(min=1, max=3, metavar="N", help="1 or 3; of 3, one may fail.")]
Port = Annotated[
    int,
    typer.Option(
        min=0,
        max=65535,
        help="The port of the first broker; the others have the next ones. 0: any free ports.",
    ),
]
Folder = Annotated[Path, typer.Option(metavar="DIR", help="The folder of the brokers' data.")]
Background = Annotated[
    bool,
    typer.Option(
        "--background",
        help="Return when the brokers answer, and leave them running; `millrace kafka down` stops them.",
    ),
]
BrokerSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the Kafka broker; may be repeated."),
]
_DEFAULT_FOLDER = Path("millrace-data/kafka")


@app.command(
    epilog=format_examples(
        "millrace kafka up",
        "millrace kafka up --brokers 3 --background",
        "millrace kafka up --port 0 --set log.segment.bytes=1048576",
    )
)
def up(
    brokers: BrokerCount = 1,
    port: Port = 9092,
    folder: Folder = _DEFAULT_FOLDER,
    background: Background = False,
    setting: BrokerSettings = None,
    json: Json = False,
) -> None:
    """Start brokers, and run them until Ctrl-C. Their data is kept in the folder for the next start.

    The first time, Maven fetches Kafka into the user's cache folder, which takes a minute.
    """
    from millrace.devtools import brokers as kafka
    from millrace.devtools.brokers.properties import BrokerOptions
    from millrace.runners.signals import stop_signals

    if brokers == 2:
        raise typer.BadParameter(
            "of two brokers neither may fail, because one alone is not a majority; use 1 or 3",
            param_hint="--brokers",
        )
    options = BrokerOptions(settings=dict(map(_parse_setting, setting or ())))
    _announce_download()
    with stop_signals() as stopping:
        cluster = kafka.start(
            folder,
            brokers=brokers,
            port=port,
            options=options,
            detached=background,
            stop_waiting=stopping.is_set,
        )
        _print_status(cluster, json=json)
        if not background:
            _run_until_stopped(cluster, stopping)


def _announce_download() -> None:
    from millrace.devtools.brokers import jars

    if not jars.jars_folder().is_dir() and jars.explain_missing() is None:
        print(f"fetching Kafka {jars.VERSION} into {jars.jars_folder()}", file=sys.stderr)


def _run_until_stopped(cluster: "Cluster", stopping: "threading.Event") -> None:
    """Waits for a signal or for the end of a broker, and stops all brokers."""
    from millrace.devtools import brokers as kafka

    count = len(cluster.nodes)
    while not stopping.wait(0.5) and len(cluster.live_nodes()) == count:
        pass
    ended = count - len(cluster.live_nodes())
    kafka.stop(cluster)
    if stopping.is_set():
        raise typer.Exit(130)
    print(f"error: {ended} of {count} brokers ended; their logs are in {cluster.folder}", file=sys.stderr)
    raise typer.Exit(1)


@app.command(epilog=format_examples("millrace kafka down"))
def down(folder: Folder = _DEFAULT_FOLDER, json: Json = False) -> None:
    """Stop the brokers of a folder. Their data stays; remove the folder to delete it."""
    from millrace.devtools import brokers as kafka

    cluster = kafka.load_cluster(folder)
    started_at = time.monotonic()
    stopped = kafka.stop(cluster) if cluster is not None else 0
    if json:
        output.print_json_lines([{"stopped": stopped, "seconds": round(time.monotonic() - started_at, 1)}])
    else:
        typer.echo(
            f"{stopped} broker{'s' * (stopped != 1)} stopped" if stopped else f"no brokers run in {folder}"
        )


@app.command(epilog=format_examples("millrace kafka status --json"))
def status(folder: Folder = _DEFAULT_FOLDER, json: Json = False) -> None:
    """Show the brokers of a folder. The exit code is 1 unless all of them run."""
    from millrace.devtools import brokers as kafka

    cluster = kafka.load_cluster(folder)
    if cluster is None:
        if json:
            output.print_json_lines([{"running": False, "url": None, "brokers": []}])
        else:
            typer.echo(f"no brokers were started in {folder} yet; start one with: millrace kafka up")
        raise typer.Exit(1)
    _print_status(cluster, json=json)
    if len(cluster.live_nodes()) < len(cluster.nodes):
        raise typer.Exit(1)


def _print_status(cluster: "Cluster", *, json: bool) -> None:
    alive = {node.id for node in cluster.live_nodes()}
    brokers: list[dict[str, Any]] = [
        {
            "broker": node.id,
            "at": f"localhost:{node.port}",
            "running": node.id in alive,
            "pid": node.pid if node.id in alive else None,
        }
        for node in cluster.nodes
    ]
    if json:
        output.print_json_lines(
            [{"running": len(alive) == len(cluster.nodes), "url": cluster.url, "brokers": brokers}]
        )
        return
    for broker in brokers:
        typer.echo(
            f"broker {broker['broker']} {'runs' if broker['running'] else 'does not run'} at {broker['at']}"
        )
    typer.echo(f"use it with --log {cluster.url}")


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"{text!r} is not a setting; write KEY=VALUE", param_hint="--set")
    return key, value
