"""Where recordings lie: in a file, at a URL, or in a store that fsspec reaches; gzipped or not, told by their content."""

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

BLOCK = 1 << 20
LONGEST_LINE = 1 << 20
_WAIT = 30.0
"""Seconds for which a server may be silent."""


def place(given: object) -> str | Path:
    """A URL as it is, anything else as the name of a file."""
    if not isinstance(given, str | Path) or not str(given):
        raise ConfigError(
            f"path={given!r} is no file name; name a recording, such as 'hsl.jsonl.gz', or its URL"
        )
    return str(given) if urlsplit(str(given)).scheme and "://" in str(given) else Path(given).expanduser()


def opened(where: str | Path) -> IO[bytes]:
    """The bytes of a recording, unpacked. A recording far away is read as it is played, not fetched first."""
    try:
        file = io.BufferedReader(_stream(where), BLOCK)
        gzipped = file.peek(2)[:2] == b"\x1f\x8b"
    except (OSError, ValueError) as error:
        raise InputError(
            f"the recording {shown(where)} cannot be read: {_reason(error)}; check where it is"
        ) from error
    if gzipped:
        return _Unpacked(file)  # type: ignore[return-value]  # a GzipFile reads like any file, whatever its type says
    if str(where).endswith(".gz"):
        file.close()
        raise InputError(
            f"the recording {shown(where)} is named .gz but is not gzipped; rename it if it is plain JSON lines, or fetch it again"
        )
    return file


def shown(where: str | Path) -> str:
    """Without what a URL may hold besides its place: a user's password, or a signature."""
    if isinstance(where, Path):
        return str(where)
    parts = urlsplit(where)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def lines(file: Any) -> Iterator[list[bytes]]:
    """All lines of each block in turn. `read1` hands out what precedes a damaged place; a line without end is not gathered in memory."""
    rest = b""
    first = True
    while block := file.read1(BLOCK):
        if first:
            block, first = block.removeprefix(b"\xef\xbb\xbf"), False
        if len(rest) > LONGEST_LINE and b"\n" not in block:
            continue
        *whole, rest = (rest + block).split(b"\n")
        yield whole
    if rest:
        yield [rest]


class _Unpacked(gzip.GzipFile):
    """Closes the file under it, too."""

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(fileobj=file)
        self._under = file

    def close(self) -> None:
        super().close()
        self._under.close()


def _stream(where: str | Path) -> Any:
    if isinstance(where, Path):
        return where.open("rb", buffering=0)
    if urlsplit(where).scheme in ("http", "https"):
        return urlopen(Request(where, headers={"User-Agent": "millrace"}), timeout=_WAIT)  # noqa: S310 - the scheme was looked at
    try:
        import fsspec
    except ImportError as error:
        raise ComponentMissing(
            f"{shown(where)} needs fsspec, which is not installed; install it with: pip install 'millrace[s3]'"
        ) from error
    with _explained(where):
        return fsspec.open(where, "rb").open()


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """What stores raise is of many kinds: it all means that the recording cannot be read."""
    try:
        yield
    except ImportError as error:
        raise ComponentMissing(f"{shown(where)}: {error}") from error
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, URLError):
        return str(getattr(error, "code", "") or error.reason)
    return getattr(error, "strerror", None) or str(error)
