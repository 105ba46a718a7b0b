"""Views: which results of a job are shown. They are declared beside the job, and served by `serve/`."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

import polars as pl

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.topics import Topic

_POSITION_COLUMNS: dict[str, tuple[str, ...]] = {
    "cells": (),
    "arcs": ("to",),
    "points": ("latitude", "longitude"),
}
"""By kind: columns besides the key that say where a result is."""


@dataclass(frozen=True)
class View:
    """The results of a topic that are shown: those of the newest window, or the newest of each key."""

    name: str
    topic: Topic
    title: str
    """Shown, for example, in the list of the map's layers."""
    _: KW_ONLY
    window: Duration
    """The size of the windows that the results are of."""
    every: Duration
    """How often there is a new window.
    With `shows="newest"`: how long a result is shown, and five seconds more, after which others are newer.
    """
    key: str
    """The column of which each value is shown once."""
    values: tuple[str, ...]
    """The columns that are shown; the first one ranks."""
    kind: Literal["cells", "arcs", "points"] = "cells"
    """How it is drawn. `cells`: the key is an H3 cell; `arcs`: from that cell to the one in the column `to`;
    `points`: the key is anything, at the place in the columns `latitude` and `longitude`.
    """
    noun: str = ""
    """What is counted, in the plural: `vehicles`. By default the title."""
    legend: str = ""
    """What the first value means. By default the title."""
    unit: str = ""
    """The unit of the first value, unless it is a count: `s`, `m/s²`."""
    shows: Literal["window", "newest"] | None = None
    """`window`: the results of one window, the newest that is complete. `newest`: of each key the newest
    result, for matches, sessions and rows without windows, which do not end together. By default `newest` for
    points and `window` for all others.
    """

    exclude: pl.Expr | None = field(default=None, compare=False)
    """Results that are never shown: an expression over the topic's columns that is true for them, such as
    `pl.col("route") == "test"`.
    """

    def __post_init__(self) -> None:
        """Refuses columns that the topic does not have, and a name that no address could hold."""
        object.__setattr__(self, "topic", self.topic.typed())
        if not self.name or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in self.name):
            raise DefinitionError(
                f"view name {self.name!r}: use letters, digits, '-', '_' and '.'; it "
                "becomes part of an address"
            )
        if self.kind not in _POSITION_COLUMNS:
            raise DefinitionError(
                f"view {self.name!r}: kind={self.kind!r} cannot be drawn; use {', '.join(_POSITION_COLUMNS)}"
            )
        if self.shows not in (None, "window", "newest"):
            raise DefinitionError(
                f"view {self.name!r}: shows={self.shows!r} is not known; use 'window' or 'newest'"
            )
        for column in (self.key, *self.values, *_POSITION_COLUMNS[self.kind]):
            if column not in self.topic.schema:
                known = ", ".join(self.topic.schema)
                raise DefinitionError(
                    f"view {self.name!r}: {column!r} is not a column of topic "
                    f"{self.topic.name!r}; it has {known}"
                )
        if not self.values:
            raise DefinitionError(f"view {self.name!r} shows no column; name at least one in values=")
        if self.kind == "arcs" and "to" not in self.values[1:]:
            raise DefinitionError(
                f"view {self.name!r}: an arc has to lead somewhere; put 'to' into values=, "
                "after the column that ranks"
            )
        self._check_types()
        self._check_exclude()
        durations.parse_positive(self.window, name="window")
        durations.parse_positive(self.every, name="every")

    def _check_types(self) -> None:
        """Refuses columns whose type has no place on a map, or no order."""
        schema, where = self.topic.schema, f"view {self.name!r}: column"
        for column in () if self.kind == "points" else (self.key, *_POSITION_COLUMNS[self.kind]):
            if schema[column] not in (pl.Int64, pl.UInt64):
                raise DefinitionError(
                    f"{where} {column!r} of topic {self.topic.name!r} is {schema[column]}, and an H3 cell "
                    "is Int64, so nothing would be shown; make it with millrace.geo.geocell(), or declare "
                    "kind='points' with columns latitude and longitude"
                )
        for column in _POSITION_COLUMNS[self.kind] if self.kind == "points" else ():
            if not schema[column].is_numeric():
                raise DefinitionError(
                    f"{where} {column!r} of topic {self.topic.name!r} is {schema[column]}, so nothing would "
                    "be shown; use degrees as Float64"
                )
        if not schema[self.values[0]].is_numeric():
            raise DefinitionError(
                f"{where} {self.values[0]!r} is {schema[self.values[0]]}, but the first of values= ranks "
                "and colours; put a number first"
            )

    def _check_exclude(self) -> None:
        """Refuses an expression over columns that the topic does not have."""
        columns = [] if self.exclude is None else self.exclude.meta.root_names()
        if unknown := [column for column in columns if column not in self.topic.schema]:
            raise DefinitionError(
                f"view {self.name!r}: exclude= uses column {unknown[0]!r}, which topic {self.topic.name!r} "
                f"does not have; use {', '.join(self.topic.schema)}"
            )

    @property
    def is_by_window(self) -> bool:
        """Whether the results of one window are shown, and not of each key the newest."""
        return self.shows == "window" or (self.shows is None and self.kind != "points")

    @property
    def window_ms(self) -> int:
        """The size of a window in whole milliseconds."""
        return durations.parse_millis(self.window)

    @property
    def every_ms(self) -> int:
        """How often there is a new window, in whole milliseconds."""
        return durations.parse_millis(self.every)
