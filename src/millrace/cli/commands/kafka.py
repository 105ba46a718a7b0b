"""`millrace kafka`: brokers on this machine."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import Json, format_examples

if TYPE_CHECKING:
    from millrace.devtools.brokers import Cluster

app = typer.Typer(
    help="Real Kafka brokers on this machine, for development: one or three, without Docker.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Option(metavar="DIR", help="Where the brokers keep what they hold.")]
_DEFAULT_FOLDER = Path("millrace-data/kafka")


@app.command(
    epilog=format_examples(
        "millrace kafka up",
        "millrace kafka up --brokers 3 --background",
        "millrace kafka up --port 0 --set log.segment.bytes=1048576",
    )
)
def up(
    brokers: Annotated[int, typer.Option(min=1, max=3, help="How many; with 3, one may fail.")] = 1,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="The first broker's; the others follow. 0: any that are free."),
    ] = 9092,
    folder: Folder = _DEFAULT_FOLDER,
    background: Annotated[
        bool,
        typer.Option(
            "--background",
            help="Return when they answer, and leave them running; `millrace kafka down` ends them.",
        ),
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A broker setting of Kafka's own; may be said several times."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Start brokers, and run them until Ctrl-C. Started again, they still hold what they held.

    The first time, Maven fetches Kafka into the user's cache folder, which takes a minute.
    """
    from millrace.devtools import brokers as kafka
    from millrace.devtools.brokers import jars
    from millrace.devtools.brokers.properties import BrokerOptions
    from millrace.runners.signals import stop_signals

    if brokers == 2:
        raise typer.BadParameter(
            "two brokers stand no failure, as neither alone is a majority; say 1 or 3", param_hint="--brokers"
        )
    if not jars.jars_folder().is_dir() and jars.explain_missing() is None:
        print(f"fetching Kafka {jars.VERSION} into {jars.jars_folder()}", file=sys.stderr)
    with stop_signals() as stopping:
        properties = BrokerOptions(settings=dict(_parse_setting(text) for text in setting or ()))
        cluster = kafka.start(
            folder,
            brokers=brokers,
            port=port,
            options=properties,
            detached=background,
            stop_waiting=stopping.is_set,
        )
        _print_status(cluster, json=json)
        if background:
            return
        while not stopping.wait(0.5) and len(cluster.live_nodes()) == brokers:
            pass
        ended = brokers - len(cluster.live_nodes())
        kafka.stop(cluster)
    if not stopping.is_set():
        print(
            f"error: {ended} of {brokers} brokers ended by themselves; their own words are in {cluster.folder}",
            file=sys.stderr,
        )
        raise typer.Exit(1)
    raise typer.Exit(130)


@app.command(epilog=format_examples("millrace kafka down"))
def down(folder: Folder = _DEFAULT_FOLDER, json: Json = False) -> None:
    """Stop the brokers of a folder. What they hold stays; remove the folder to forget it."""
    from millrace.devtools import brokers as kafka

    cluster = kafka.load_cluster(folder)
    began = time.monotonic()
    stopped = kafka.stop(cluster) if cluster is not None else 0
    if json:
        output.print_json_lines([{"stopped": stopped, "seconds": round(time.monotonic() - began, 1)}])
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
            typer.echo(f"no brokers were ever started in {folder}; start one with: millrace kafka up")
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
        raise typer.BadParameter(f"{text!r}: write KEY=VALUE", param_hint="--set")
    return key, value
