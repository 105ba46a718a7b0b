"""`millrace serve`: the live map and the views, over HTTP."""

from typing import Annotated

import typer

from millrace.cli.commands.options import Config, LogUrl, format_examples, load_settings

EXAMPLES = format_examples(
    "millrace serve",
    "millrace serve --port 9000 --log embedded:other/log",
    "millrace serve --host 0.0.0.0 --view jobs.py:STOPS_VIEW",
)

Host = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The address to listen at; 0.0.0.0 is reachable from other machines. Overrides serve.host.",
    ),
]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="The port; 0: any free one. Overrides serve.port.")
]
Views = Annotated[
    list[str] | None,
    typer.Option(
        "--view",
        metavar="FILE.PY:NAME",
        help="A View or a list of them; also module:attribute. May be repeated. Overrides serve.views.",
    ),
]


def serve(
    host: Host = None, port: Port = None, view: Views = None, log: LogUrl = None, config: Config = None
) -> None:
    """Show the newest results on a live map, until Ctrl-C.

    It reads the results that jobs write to the log, and waits for topics that do not exist yet. Programs read
    them as JSON, at /api/views.
    """
    from millrace.graph.find_jobs import load_views
    from millrace.serve import serve as run

    settings = load_settings(config, log_url=log, serve_host=host, serve_port=port, serve_views=view or None)
    run(settings, load_views(settings.serve.views), host=settings.serve.host, port=settings.serve.port)
