"""`millrace serve`: the live map and the views, over HTTP."""

from typing import Annotated

import typer

from millrace.cli.commands.options import Config, LogUrl, format_examples, load_settings

EXAMPLES = format_examples(
    "millrace serve",
    "millrace serve --port 9000 --log embedded:other/log",
    "millrace serve --host 0.0.0.0 --view jobs.py:STOPS_VIEW",
)


def serve(
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Where to listen; 0.0.0.0 is reachable from other machines. Overrides serve.host.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port; 0: any that is free. Overrides serve.port."),
    ] = None,
    view: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            help="A View or a list of them, module:attribute or file.py:attribute; may be said several times. Overrides serve.views.",
        ),
    ] = None,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Show the newest results on a live map, in a browser, until stopped with Ctrl-C.

    It reads the results that jobs write to the log, and waits for those that are not there yet. Others can read them as JSON, at /api/views.
    """
    from millrace.graph.find_jobs import load_views
    from millrace.serve import serve as run

    loaded_settings = load_settings(
        config, log_url=log, serve_host=host, serve_port=port, serve_views=view or None
    )
    run(
        loaded_settings,
        load_views(loaded_settings.serve.views),
        host=loaded_settings.serve.host,
        port=loaded_settings.serve.port,
    )
