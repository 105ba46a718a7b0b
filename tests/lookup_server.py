"""A small HTTP service that tests ask: it knows some stops, and can be slow, broken or moody on demand."""

import asyncio
import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service:
    """What it does, and what it was asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0
        self.behave: Callable[[str, int], int] = lambda stop, nth: 200
        """The status of the n-th answer for a stop, counted from 1; it may also wait for something."""
        self.known: Callable[[str], dict[str, Any] | None] = lambda stop: {
            "cell": f"cell of {stop}",
            "zone": len(stop),
        }
        self.address = ("", 0)
        self._lock = threading.Lock()

    def answer(self, stop: str) -> tuple[int, bytes]:
        with self._lock:
            self.asked[stop] += 1
            nth = self.asked[stop]
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            status = self.behave(stop, nth)
        finally:
            with self._lock:
                self.at_once -= 1
        return status, json.dumps(self.known(stop)).encode()

    def get(self, stop: str) -> Any:
        """Asks over HTTP, as a plain function."""
        connection = http.client.HTTPConnection(*self.address)
        try:
            connection.request("GET", f"/{stop}")
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise OSError(f"HTTP Error {response.status}")
        return json.loads(body)

    async def get_async(self, stop: str) -> Any:
        """Asks over HTTP, asynchronously."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(f"GET /{stop} HTTP/1.0\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise OSError(head.partition(b"\r\n")[0].decode())
        return json.loads(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


@contextmanager
def serving() -> Iterator[Service]:
    """The service, over HTTP on this machine."""
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = service.answer(self.path.removeprefix("/"))
            try:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                return  # nobody waits for it any more

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the interface of http.server
            return

    with _Server(("127.0.0.1", 0), Handler) as server:
        service.address = ("127.0.0.1", server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield service
        server.shutdown()
        thread.join()
