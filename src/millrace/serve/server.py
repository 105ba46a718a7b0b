"""The web server: its socket, the application, and a stop without delay."""

import errno
import logging
import socket
from collections.abc import Sequence

import uvicorn

from millrace.errors import ConfigError
from millrace.log import LogAddress, url_of
from millrace.serve.app import make_app
from millrace.serve.context import ServerContext
from millrace.serve.pages import built_pages
from millrace.views import View

MAX_MESSAGE_BYTES = 65_536
"""The most bytes of a viewer's message."""
SEND_BUFFER_BYTES = 262_144
"""Bytes of the send buffer per connection. By default it has megabytes, all of which a slow viewer would get
before newer state."""
STUCK_MS = 90_000
"""Milliseconds after which the system drops a connection whose other side takes no data."""

_log = logging.getLogger("millrace.serve")


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free port."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=512)
    except OSError as error:
        raise ConfigError(_explain(host, port, error)) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MS)
    return listener


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use, perhaps by another millrace; "
            "stop that one, or choose another port with --port (0: any free one)"
        )
    if error.errno == errno.EACCES:
        return f"port {port} of {host} may not be used by this user; choose one above 1023 with --port"
    return (
        f"cannot listen at {host}, port {port}: {error.strerror or error}; "
        "name an address of this machine with --host, such as 127.0.0.1"
    )


class Server(uvicorn.Server):
    """Stops without waiting for viewers that take no data."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Aborts stuck connections, and closes the others."""
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None and transport.get_write_buffer_size():
                transport.abort()
        await super().shutdown(sockets)


def make_server(context: ServerContext) -> Server:
    """A server that is not running yet: `run(sockets=[...])` runs it, until a signal or `should_exit`."""
    config = uvicorn.Config(
        make_app(context, pages=built_pages()),
        access_log=False,
        log_config=None,
        lifespan="on",
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # shared texts would be compressed again for each viewer
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return Server(config)


def serve(log: LogAddress, views: Sequence[View], *, host: str, port: int) -> None:
    """Serves views of the log until interrupted. It then raises KeyboardInterrupt, also where SIGINT was
    ignored.
    """
    with open_listener(host, port) as listener:
        _log.info("serving %s at %s", url_of(log), address(listener))
        make_server(ServerContext.create(log, views)).run(sockets=[listener])
    raise KeyboardInterrupt


def address(listener: socket.socket) -> str:
    """The URL of the map for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
