"""docs/reference/coverage.md: `python -m matrix.page FILE` writes it."""

import sys
from itertools import product
from pathlib import Path

from matrix.cells import EXTRAS, OUTPUTS, TRIGGERS, WATERMARKS, WINDOWS, Cell, cells, impossible, senseless

HEAD = """\
# What the transcripts cover

Written by `make docs` from `tests/transcripts/`. Each number counts the transcripts with a window, a trigger and an output.
Letters mark that some of them have lateness (L), a restart in the middle (R), or several partitions (P).
`millrace transcript --on model|engine|spark tests/transcripts/*.yaml` runs them.
"""  # noqa: E501 - the text of a page

WATERMARKS_HEAD = """\
## Watermarks

Most transcripts set the watermark themselves; in the others it moves with the events, by one of the kinds of watermarks. With
`ingestion_time` no event is ever late.

| watermark | transcripts | events refused | restart | partitions |
|---|---|---|---|---|
"""  # noqa: E501 - the text of a page


def page() -> str:
    """The matrix, and why some of its cells are empty."""
    found = [cell for _, cell in cells()]
    parts = [HEAD]
    for window in WINDOWS:
        parts.append(
            f"## {window}\n\n| trigger | {' | '.join(OUTPUTS)} "
            f"|\n|---|{'---|' * len(OUTPUTS)}\n{rows(window, found)}"
        )
        parts += [f"No {extra}: {why}.\n" for extra in EXTRAS if (why := impossible(window, extra))]
    parts.append(f"{WATERMARKS_HEAD}{watermarks(found)}")
    parts.append(f"{len(found)} transcripts.\n\n## Combinations that do not exist\n\n{reasons()}")
    return "\n".join(parts)


def rows(window: str, found: list[Cell]) -> str:
    """A line for each trigger that makes sense."""
    lines = []
    for trigger in TRIGGERS:
        if senseless(window, trigger) is None:
            here = [cell for cell in found if (cell.window, cell.trigger) == (window, trigger)]
            counts = [count_cells([cell for cell in here if cell.output == output]) for output in OUTPUTS]
            lines.append(f"| {trigger} | {' | '.join(counts)} |\n")
    return "".join(lines)


def count_cells(here: list[Cell]) -> str:
    """A number and letters."""
    letters = "".join(extra[0].upper() for extra in EXTRAS if any(getattr(cell, extra) for cell in here))
    return f"{len(here)} {letters}".strip() if here else "–"


def watermarks(found: list[Cell]) -> str:
    """A line for each way in which a watermark moves."""
    lines = []
    for watermark in WATERMARKS:
        here = [cell for cell in found if cell.watermark == watermark]
        counts = [
            len(here),
            *(sum(getattr(cell, extra) for cell in here) for extra in ("refuses", "restart", "partitions")),
        ]
        lines.append(f"| {watermark} | {' | '.join(str(count or '–') for count in counts)} |\n")
    return "".join(lines)


def reasons() -> str:
    """What is left out, by its reason."""
    because: dict[str, list[str]] = {}
    for window, trigger in product(WINDOWS, TRIGGERS):
        if why := senseless(window, trigger):
            because.setdefault(why, []).append(f"{window} × {trigger}")
    return "".join(f"- {why}: {', '.join(pairs)}\n" for why, pairs in because.items())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
