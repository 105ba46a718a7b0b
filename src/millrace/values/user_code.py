"""Where a user's own code raised, and with which row."""

from __future__ import annotations

import json
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

_PACKAGE = str(Path(__file__).parents[1])
_BENCHMARKS = str(Path(__file__).parents[3] / "bench")
"""Of a checkout; `millrace bench` calls them."""
_LIBRARIES = (
    *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(pl.__file__).parent),
    "<frozen",
    "<string>",
)
"""Also code that the standard library generates, such as the methods of dataclasses."""
_MAX_ROW_CHARS = 200
_ROW = "row "


def locate(error: BaseException) -> str:
    """`file.py:7 in boom`: the innermost line of a user's code that millrace called; empty if there is none.

    The caller of millrace is a user's program as well, but not at fault: it is outside of millrace's frames.
    """
    for raised in _chain(error):
        frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(raised.__traceback__)]
        called = [code.co_filename.startswith(_PACKAGE) for code, _ in frames]
        for code, line in reversed(frames[called.index(True) :] if any(called) else []):
            if not code.co_filename.startswith((_PACKAGE, _BENCHMARKS, *_LIBRARIES)):
                return f"{Path(code.co_filename).name}:{line} in {code.co_name}"
    return ""


def describe_failure(error: BaseException, *more: str) -> str:
    """Place, notes and more in brackets, to stand behind an error's text; empty if nothing is known."""
    known = [locate(error), *getattr(error, "__notes__", []), *more]
    return f" ({'; '.join(filter(None, known))})" if any(known) else ""


def add_row(error: BaseException, *frames: pl.DataFrame) -> None:
    """Notes the first row with which the error was raised, as a user knows it."""
    rows = next((frame for frame in frames if frame.height), None)
    if rows is not None:
        add_values(error, rows.row(0, named=True))


def add_values(error: BaseException, row: Mapping[str, Any]) -> None:
    """Notes a row, unless the error has one: the innermost is the one that raised it."""
    if any(note.startswith(_ROW) for note in getattr(error, "__notes__", [])):
        return
    own = {name: row[name] for name in row if not name.startswith("_") and name != "ingestion_time"}
    text = json.dumps(own, default=str, ensure_ascii=False)
    error.add_note(f"{_ROW}{text if len(text) <= _MAX_ROW_CHARS else text[:_MAX_ROW_CHARS] + '…'}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it."""
    found: BaseException | None = error
    for _ in range(20):  # a chain may be a circle
        if found is None:
            return
        yield found
        found = found.__cause__ or found.__context__
