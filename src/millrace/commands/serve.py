"""`millrace serve`: the live map and the views, over HTTP."""

from typing import Annotated

import typer

from millrace.commands.options import Config, LogUrl, examples, settings

EXAMPLES = examples("millrace serve", "millrace serve --port 9000 --log embedded:other/log", "millrace serve --host 0.0.0.0")


def serve(
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is reachable from other machines. Overrides serve.host.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 0: any that is free. Overrides serve.port.")] = None,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Show the newest results on a live map, in a browser, until stopped with Ctrl-C.

    It reads the results that jobs write to the log, and waits for those that are not there yet. Others can read them as JSON, at /api/views.
    """
    from millrace.serve import serve as run
    from millrace.transit.views import VIEWS

    chosen = settings(config, log_url=log, serve_host=host, serve_port=port)
    run(chosen.log.url, VIEWS, host=chosen.serve.host, port=chosen.serve.port)
