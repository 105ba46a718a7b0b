"""Frames in files: Parquet, CSV and JSON lines, told apart by the name's ending."""

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

from millrace.errors import ConfigError, InputError
from millrace.local_paths import local

_READERS: Mapping[str, Callable[[Path], pl.DataFrame]] = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".jsonl": pl.read_ndjson}
_WRITERS: Mapping[str, Callable[[pl.DataFrame, Path], None]] = {
    ".parquet": lambda frame, path: frame.write_parquet(path),
    ".csv": lambda frame, path: frame.write_csv(path),
    ".jsonl": lambda frame, path: frame.write_ndjson(path),
}


def check(path: Path) -> None:
    """Refuses a name whose ending says no format, before any work is done."""
    local(path, "the file")
    if path.suffix not in _WRITERS:
        raise ConfigError(f"{path}: the ending {path.suffix!r} is no format; use one of {', '.join(_WRITERS)}")


def read(path: Path) -> pl.DataFrame:
    """The table in a file."""
    check(path)
    try:
        return _READERS[path.suffix](path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); check the path") from error
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path} is no valid {path.suffix[1:]} file: {error}") from error


def write(frame: pl.DataFrame, path: Path) -> None:
    """Writes a table; one that is there is replaced."""
    check(path)
    try:
        _WRITERS[path.suffix](frame, path)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error}); check the folder and its permissions") from error
