"""Output of commands: tables on a terminal, tab-separated lines elsewhere, and JSON lines for programs."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None
) -> None:
    """A table on a terminal; otherwise a header and rows, with tabs between columns."""
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            print(*map(format_cell, row), sep="\t")
        return
    from rich.console import Console
    from rich.table import Table

    rich_table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        rich_table.add_row(*map(format_cell, row))
    Console().print(rich_table)


def print_frame(rows: "pl.DataFrame", *, limit: int | None = None, title: str | None = None) -> None:
    """A frame as a table. On a terminal at most `limit` rows are shown, and a line says how many are not."""
    shown = rows.head(limit) if limit is not None and sys.stdout.isatty() else rows
    print_table(shown.columns, shown.iter_rows(), title=title)
    if len(shown) < len(rows):
        print(f"... and {len(rows) - len(shown)} more; use --limit to show more, or --output FILE for all")


def print_json_lines(objects: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object per line, each flushed, so that a pipe delivers it at once."""
    for item in objects:
        print(json.dumps(item, default=_to_json_value, ensure_ascii=False), flush=True)


def iter_rows(source: "pl.DataFrame") -> Iterator[dict[str, Any]]:
    """A frame's rows as objects."""
    return source.iter_rows(named=True)


def _to_json_value(value: object) -> object:
    if isinstance(value, timedelta):
        return f"{Decimal(value // timedelta(microseconds=1)).scaleb(-6).normalize():f}s"
    return value.hex() if isinstance(value, bytes) else str(value)


def format_cell(value: object) -> str:
    """A value as a cell of a table."""
    if value is None:
        return "-"
    if isinstance(value, timedelta):
        return f"{Decimal(value // timedelta(microseconds=1)).scaleb(-6).normalize():f}s"
    return value.hex() if isinstance(value, bytes) else str(value)
