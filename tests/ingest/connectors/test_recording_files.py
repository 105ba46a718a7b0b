"""Recordings from far away: over HTTP, and from a store that speaks S3's protocol."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from millrace.errors import ComponentMissing, ConfigError, InputError
from millrace.ingest.connectors.recording import Recording
from millrace.ingest.connectors.recording_files import redact

LINES = b"".join(
    json.dumps({"received": n, "topic": "t", "payload": {"n": n}}).encode() + b"\n" for n in range(5_000)
)
PACKED = gzip.compress(LINES)


class Store(BaseHTTPRequestHandler):
    """Hands out `PACKED`, whole or in ranges, as web servers and S3 do."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        if "missing" in self.path:
            self.send_error(404)
            return
        byte_range = self.headers.get("Range", "").removeprefix("bytes=")
        first, _, last = byte_range.partition("-")
        part = PACKED[int(first or 0) : int(last) + 1 if last else None]
        self.send_response(206 if byte_range else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 21 Sep 2020 03:00:00 GMT")
        if byte_range:
            self.send_header(
                "Content-Range", f"bytes {first}-{int(first or 0) + len(part) - 1}/{len(PACKED)}"
            )
        self.end_headers()
        if body:
            self.wfile.write(part)

    def log_message(self, *byte_range: object) -> None:
        pass


@contextmanager
def served() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def numbers(path: str | Path) -> list[int]:
    with Recording(path, speed="max") as recording:
        found: list[int] = []
        while (batch := recording.poll(limit=1_000, wait=0)) is not None:
            found += batch.received
    return found


def test_a_recording_is_played_from_a_url_as_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl.gz").write_bytes(PACKED)
    with served() as host:
        assert numbers(f"http://{host}/r.jsonl.gz") == numbers(tmp_path / "r.jsonl.gz") == list(range(5_000))


def test_one_that_is_not_there_is_named_without_what_else_the_address_holds() -> None:
    with served() as host, pytest.raises(InputError) as failed:
        Recording(f"http://me:secret@{host}/missing.gz?signature=secret").open()
    assert f"http://{host}/missing.gz cannot be read: " in str(failed.value)
    assert "secret" not in str(failed.value)
    assert redact("s3://key:secret@bucket/r.gz") == "s3://bucket/r.gz"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries beneath
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_recording_is_played_from_a_store_that_speaks_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as host:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_DEFAULT_REGION": "eu-north-1",
        }.items():
            monkeypatch.setenv(name, value)
        assert numbers("s3://bucket/r.jsonl.gz") == list(range(5_000))


def test_a_scheme_that_nobody_knows_is_an_error_of_one_line() -> None:
    with pytest.raises((InputError, ComponentMissing), match="nowhere://r"):
        Recording("nowhere://r").open()


@pytest.mark.parametrize("path", ["", None, 5])
def test_what_is_no_place_is_refused(path: object) -> None:
    with pytest.raises(ConfigError, match="not a file name"):
        Recording(path)  # type: ignore[arg-type]
