"""Rows for the tests of row frames: readings of meters, by key."""

from dataclasses import dataclass
from typing import Any

import millrace as mr
from millrace import watermarks
from millrace.testing.script import On, Script
from strategies import write


@dataclass(frozen=True)
class Reading:
    """What a meter says."""

    meter: str | None
    value: float | None


READINGS = mr.Topic("input.readings", Reading, key="meter")


def read() -> mr.Keyed:
    return mr.read(READINGS, watermark=watermarks.bounded(0)).group_by("meter")


def job(stream: mr.Stream) -> mr.Job:
    return mr.Job("framed", write(stream, "analytics.framed"))


def reading(at: int, value: float | None, meter: str | None = "a") -> dict[str, Any]:
    return {"meter": meter, "value": value, "event_time": at}


class Shown:
    """A script, and of the rows that it shows the time and some columns, in order."""

    def __init__(self, stream: mr.Stream, *columns: str, on: On = "engine") -> None:
        self.script, self.columns = Script(job(stream), on=on), columns

    def after(self, *rows: dict[str, Any], watermark: int | None = None) -> list[tuple[Any, ...]]:
        """What is shown when these rows have come and the watermark has moved; None: to the end."""
        self.script.events(*rows)
        self.script.end() if watermark is None else self.script.watermark(watermark)
        return self.rows()

    def rows(self) -> list[tuple[Any, ...]]:
        found = [(row["event_time"], *(row[c] for c in self.columns)) for row in self.script.panes()]
        return sorted(found, key=lambda row: row[0])


def stored_rows(script_engine: Any) -> int:
    """How many rows lie in the state of an engine, merged or not."""
    tables = [table for state in script_engine.engine.states.values() for table in state.tables.values()]
    return sum(table.rows for table in tables)
