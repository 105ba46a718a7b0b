"""Opens recordings: local files, URLs, and stores that fsspec reaches. Gzip is detected by content."""

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from millrace.errors import ComponentMissing, ConfigError, InputError

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20
_TIMEOUT = 30.0
"""Seconds after which a silent server is given up."""


def parse_location(path: object) -> str | Path:
    """A URL as text, or the path of a file."""
    if not isinstance(path, str | Path) or not str(path):
        raise ConfigError(
            f"path={path!r} is not a file name; name a recording, such as 'hsl.jsonl.gz', or its URL"
        )
    return str(path) if urlsplit(str(path)).scheme and "://" in str(path) else Path(path).expanduser()


def open_recording(location: str | Path) -> IO[bytes]:
    """The unpacked bytes of a recording. A remote one is read while it is played, and not downloaded
    first.
    """
    try:
        file = io.BufferedReader(_open_stream(location), BLOCK_BYTES)
        gzipped = file.peek(2)[:2] == b"\x1f\x8b"
    except (OSError, ValueError) as error:
        raise InputError(
            f"the recording {redact(location)} cannot be read: {_error_text(error)}; check the path or URL"
        ) from error
    if gzipped:
        return _GzipReader(file)  # type: ignore[return-value]  # a GzipFile reads like any file, whatever its type says
    if str(location).endswith(".gz"):
        file.close()
        raise InputError(
            f"the recording {redact(location)} is named .gz but is not gzipped; rename it if it is plain "
            "JSON lines, or fetch it again"
        )
    return file


def redact(location: str | Path) -> str:
    """The URL without secrets: without password and query, which may be a signature."""
    if isinstance(location, Path):
        return str(location)
    parts = urlsplit(location)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def read_lines(file: Any) -> Iterator[list[bytes]]:
    """The lines of one block after another. `read1` returns the data before a damaged place; endless lines
    are cut.
    """
    partial = b""
    is_first = True
    while block := file.read1(BLOCK_BYTES):
        if is_first:
            block, is_first = block.removeprefix(b"\xef\xbb\xbf"), False
        if len(partial) > MAX_LINE_BYTES and b"\n" not in block:
            continue
        *complete, partial = (partial + block).split(b"\n")
        yield complete
    if partial:
        yield [partial]


class _GzipReader(gzip.GzipFile):
    """Closes the underlying file as well."""

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(fileobj=file)
        self._source = file

    def close(self) -> None:
        super().close()
        self._source.close()


def _open_stream(location: str | Path) -> Any:
    if isinstance(location, Path):
        return location.open("rb", buffering=0)
    if urlsplit(location).scheme in ("http", "https"):
        return urlopen(Request(location, headers={"User-Agent": "millrace"}), timeout=_TIMEOUT)  # noqa: S310 - the scheme was looked at
    try:
        import fsspec
    except ImportError as error:
        raise ComponentMissing(
            f"{redact(location)} needs fsspec, which is not installed; install it with: pip install "
            "'millrace-streams[s3]'"
        ) from error
    with _translate_errors(location):
        return fsspec.open(location, "rb").open()


@contextmanager
def _translate_errors(location: str) -> Iterator[None]:
    """Turns the many kinds of errors that stores raise into `InputError`."""
    try:
        yield
    except ImportError as error:
        raise ComponentMissing(f"{redact(location)}: {error}") from error
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def _error_text(error: OSError | ValueError) -> str:
    if isinstance(error, URLError):
        return str(getattr(error, "code", "") or error.reason)
    return getattr(error, "strerror", None) or str(error)
