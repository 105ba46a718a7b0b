"""What of a job's results is shown: declared beside the job, kept and served by `serve/`."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.topics import Topic


@dataclass(frozen=True)
class View:
    """The newest result of each key of a topic."""

    name: str
    topic: Topic
    title: str
    """What people call it, such as in the list of a map's layers."""
    _: KW_ONLY
    window: Duration
    """The size of the windows that the results are of."""
    every: Duration
    """How often there is a new window. A result is shown until results are newer by more than this and five seconds."""
    key: str
    """The column of which each value is shown once."""
    values: tuple[str, ...]
    """The columns that are shown; the first one ranks."""
    kind: Literal["cells", "arcs", "points"] = "cells"
    """How it is drawn. `cells`: the key is an H3 cell; `arcs`: from that cell to the one in the column `to`; `points`: the key is anything, at the place in
    the columns `latitude` and `longitude`."""
    noun: str = ""
    """What is counted, in the plural: `vehicles`. By default the title."""
    legend: str = ""
    """What the first value means. By default the title."""
    unit: str = ""
    """Of the first value, where it is no count: `s`, `m/s²`."""

    def __post_init__(self) -> None:
        """Refuses columns that the topic does not have, and a name that no address could hold."""
        if not self.name or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in self.name):
            raise DefinitionError(f"view name {self.name!r}: use letters, digits, '-', '_' and '.'; it becomes part of an address")
        places = {"cells": (), "arcs": ("to",), "points": ("latitude", "longitude")}
        if self.kind not in places:
            raise DefinitionError(f"view {self.name!r}: kind={self.kind!r} cannot be drawn; use {', '.join(places)}")
        for column in (self.key, *self.values, *places[self.kind]):
            if column not in self.topic.schema:
                known = ", ".join(self.topic.schema)
                raise DefinitionError(f"view {self.name!r}: {column!r} is no column of topic {self.topic.name!r}; it has {known}")
        if not self.values:
            raise DefinitionError(f"view {self.name!r} shows no column; name at least one in values=")
        if self.kind == "arcs" and "to" not in self.values[1:]:
            raise DefinitionError(f"view {self.name!r}: an arc has to lead somewhere; put 'to' into values=, after the column that ranks")
        durations.positive(self.window, name="window")
        durations.positive(self.every, name="every")

    @property
    def window_ms(self) -> int:
        """The size of a window in whole milliseconds."""
        return durations.millis(self.window)

    @property
    def every_ms(self) -> int:
        """How often there is a new window, in whole milliseconds."""
        return durations.millis(self.every)
