"""Frames in files: Parquet, CSV and JSON lines, told apart by the name's ending.

CSV knows only text, so its columns are text until `typed` reads them by the type that is wanted: a guess
would make 7 of "007".
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import polars as pl

from millrace.errors import ConfigError, InputError
from millrace.values.local_paths import require_local

_READERS: Mapping[str, Callable[[Path], pl.DataFrame]] = {
    ".parquet": pl.read_parquet,
    ".csv": lambda path: pl.read_csv(path, infer_schema=False, empty_string_is_null=False),
    ".jsonl": lambda path: pl.read_ndjson(path, infer_schema_length=None),
}
_WRITERS: Mapping[str, Callable[[pl.DataFrame, Path], None]] = {
    ".parquet": lambda frame, path: frame.write_parquet(path),
    ".csv": lambda frame, path: frame.write_csv(path),
    ".jsonl": lambda frame, path: frame.write_ndjson(path),
}

ENDINGS = tuple(_READERS)

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


def check_format(path: Path) -> None:
    """Refuses a name whose ending says no format, before any work is done."""
    require_local(path, "the file")
    if path.suffix not in _WRITERS:
        raise ConfigError(
            f"{path}: the ending {path.suffix!r} is not a format; use one of {', '.join(_WRITERS)}"
        )


def read(path: Path) -> pl.DataFrame:
    """The table in a file."""
    check_format(path)
    try:
        return _READERS[path.suffix](path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); check the path") from error
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path} is not a valid {path.suffix[1:]} file ({error}); check it") from error


def parse_column(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """A column of CSV as a type wants it; text that cannot be meant stays text."""
    if dtype == pl.String:
        return column
    filled = pl.select(pl.when(column != "").then(column).alias(column.name)).to_series()
    if dtype == pl.Boolean:
        word = filled.str.to_lowercase()
        parsed = pl.select(
            pl.when(word.is_in(_TRUE)).then(True).when(word.is_in(_FALSE)).then(False).alias(column.name)
        ).to_series()
    elif dtype.is_nested():
        return _parse_nested(filled)
    elif dtype == pl.Int64:
        parsed = filled.cast(pl.Int64, strict=False)
    else:
        return filled
    return parsed if parsed.null_count() == filled.null_count() else filled


def _parse_nested(texts: pl.Series) -> pl.Series:
    """Lists and objects as JSON."""
    try:
        values = [None if text is None else msgspec.json.decode(text) for text in texts.to_list()]
        return pl.Series(texts.name, values, strict=False)
    except (msgspec.DecodeError, TypeError, pl.exceptions.PolarsError):
        return texts


def write(frame: pl.DataFrame, path: Path) -> None:
    """Writes a table; one that is there is replaced."""
    check_format(path)
    try:
        _WRITERS[path.suffix](frame, path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}); check the folder and its permissions"
        ) from error
