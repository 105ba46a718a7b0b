"""Functions and methods called wrongly: an error of one line that names what is wrong and what to do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, state, triggers, watermarks, windows
from millrace.errors import MillraceError
from millrace.geo import geocell
from millrace.sinks.postgres import PostgresTable, follow
from millrace.testing import Script
from wrong_uses.table import REMEDY, WrongUse, read_table

ROWS = read_table(Path(__file__).with_name("calls.txt"))


@dataclass
class Reading:
    room: str
    celsius: float


@dataclass
class Other:
    name: str


READINGS = mr.Topic("input.readings", Reading, key="room")
readings = mr.read(READINGS, watermark=watermarks.bounded("5s"))
minutes = readings.window(windows.fixed("1m"))
rooms = minutes.group_by("room")
NAMES: dict[str, Any] = {
    "Other": Other,
    "Path": Path,
    "PostgresTable": PostgresTable,
    "READINGS": READINGS,
    "Reading": Reading,
    "Script": Script,
    "aggregates": aggregates,
    "follow": follow,
    "frame": pl.DataFrame({"room": ["a"], "celsius": [1.0], "event_time": [1]}),
    "geocell": geocell,
    "minutes": minutes,
    "mr": mr,
    "pl": pl,
    "readings": readings,
    "rooms": rooms,
    "state": state,
    "triggers": triggers,
    "warmth": mr.Job("warmth", rooms.mean("celsius").write("analytics.warmth")),
    "watermarks": watermarks,
    "windows": windows,
}
"""What the calls of the table use."""


def test_the_table_is_long() -> None:
    assert len(ROWS) >= 80


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.typed)
def test_a_wrong_call_is_one_line_with_a_remedy(
    row: WrongUse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((MillraceError, AttributeError)) as refused:
        eval(row.typed, NAMES)
    message = f"{type(refused.value).__name__}: {refused.value}"
    assert row.matches(message), f"the table has\n{row.message}\nbut there was\n{message}"
    assert REMEDY.search(str(refused.value))
