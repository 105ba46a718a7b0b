"""The matcher: rows in order of event time in, matches and timeouts out. Pure: what is known of each key is given and returned.

Conditions on the row are computed as columns, once for all rows; then only keys in which a match has begun or may begin are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from millrace.errors import DefinitionError
from millrace.patterns.automaton import Automaton, State, conditions, reachable
from millrace.patterns.building import Pattern
from millrace.patterns.courses import MOST, Course, Found, Match, Rules
from millrace.patterns.memory import Event, Memory, chain
from millrace.patterns.verdicts import Tests, columns_of

Key = tuple[Any, ...]
END = 2**62
"""The watermark at the end of a stream: nothing comes any more."""

_PLAIN = (pl.String, pl.Boolean, pl.Binary, pl.Null)

MATCH, STEP, AT = "_match", "_step", "_at"
"""Of the rows of matches: which match, which step took it, and when the match was known, if by time that passed."""


@dataclass(frozen=True)
class Matched:
    """What came of a batch: the courses that changed (None: there is nothing more to know of the key), and rows of matches and timeouts."""

    courses: Mapping[Key, Course | None]
    matches: pl.DataFrame
    timeouts: pl.DataFrame


@dataclass(frozen=True, eq=False)
class Matcher:
    """A pattern, ready for rows of a schema."""

    pattern: Pattern
    schema: pl.Schema
    keys: tuple[str, ...]
    time: str = "event_time"
    most: int = MOST
    _starting: dict[int, bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        missing = sorted(column for column in columns_of(conditions(self.pattern)) if column not in self.schema)
        if missing:
            raise DefinitionError(
                f"the pattern {self.pattern} asks for {', '.join(missing)}, which rows do not have; there are {', '.join(self.schema)}"
            )
        _ = self.rules
        try:
            self.schema.to_frame().select(self.tests.mask(), *(expr.alias(f"_extra{i}") for i, expr in enumerate(self.tests.extras)))
        except pl.exceptions.PolarsError as error:
            raise DefinitionError(f"the pattern {self.pattern} does not fit the columns {dict(self.schema)}: {error}") from error

    @cached_property
    def tests(self) -> Tests:
        """The columns that conditions need."""
        return Tests(Memory(list(self.schema), [step.name for step in self.pattern.steps]))

    @cached_property
    def rules(self) -> Rules:
        """How the courses of keys go."""
        automaton = Automaton(self.pattern, self.tests)
        return Rules(automaton, self.tests.memory, self.pattern.span, self.pattern.skip, self.most)

    @property
    def states(self) -> Sequence[State]:
        """What partial matches are in, by number."""
        return self.rules.automaton.states

    def step(self, courses: Mapping[Key, Course], frame: pl.DataFrame, watermark: int) -> Matched:
        """Takes rows, in order of event time and all before the watermark, and lets time pass up to it, in the keys given, too."""
        found: list[tuple[Key, Match]] = []
        timeouts: list[tuple[Key, Match]] = []
        changed: dict[Key, Course | None] = {}
        seen: set[Key] = set()
        for key, events in self._events(courses, frame):
            seen.add(key)
            self._follow(key, courses.get(key), events, watermark, changed, found, timeouts)
        for key, course in courses.items():
            due = self.rules.due(course) if key not in seen else None
            if key not in seen and (watermark >= END or (due is not None and due <= watermark)):
                self._follow(key, course, [], watermark, changed, found, timeouts)
        return Matched(changed, self._rows(found), self._rows(timeouts))

    def _follow(
        self,
        key: Key,
        course: Course | None,
        events: list[Event],
        watermark: int,
        changed: dict[Key, Course | None],
        matches: list[tuple[Key, Match]],
        timeouts: list[tuple[Key, Match]],
    ) -> None:
        found = Found([], [])
        after = self.rules.follow(course or Course(), events, watermark, self._may_start, found, ended=watermark >= END)
        if course is not None or not after.over:
            changed[key] = None if after.over else after
        matches += [(key, match) for match in found.matches]
        timeouts += [(key, match) for match in found.timeouts]

    def _events(self, courses: Mapping[Key, Course], frame: pl.DataFrame) -> Iterator[tuple[Key, list[Event]]]:
        """The rows of each key that matters, as events."""
        extras = [expr.alias(f"_extra{i}") for i, expr in enumerate(self.tests.extras)]
        columns = list(self.schema)
        ready = frame.select(*columns, self.tests.mask().alias("_mask"), *extras)
        begins = pl.col("_mask").is_in([mask for mask in ready["_mask"].unique().to_list() if self._may_start(mask)])
        number = pl.struct(self.keys).rank("dense").alias("_key") if self.keys else pl.lit(1, pl.UInt32).alias("_key")
        ready = ready.with_columns(begins.alias("_begins"), number)
        known = set(courses)
        starting = set(ready.filter("_begins")["_key"].unique().to_list())
        for (group,), part in ready.partition_by("_key", as_dict=True, maintain_order=True, include_key=True).items():
            key = part.select(self.keys).row(0) if self.keys else ()
            if group not in starting and key not in known:
                continue
            seq = courses[key].seq if key in known else 0
            rows, masks, times = part.select(columns).rows(), part["_mask"].to_list(), part[self.time].to_list()
            more = part.select(extra.meta.output_name() for extra in extras).rows() if extras else [()] * len(rows)
            yield key, [Event(seq + i, times[i], masks[i], rows[i], more[i]) for i in range(len(rows))]

    def _may_start(self, mask: int) -> bool:
        """Whether a row with these bits can be the first of a match."""
        if mask not in self._starting:
            nobody = Event(0, 0, mask, ())
            tests = [state.take for state in reachable(self.rules.automaton.start) if state.take is not None]
            self._starting[mask] = any(not test.pure or test.holds(nobody, None) for test in tests)
        return self._starting[mask]

    def _rows(self, found: list[tuple[Key, Match]]) -> pl.DataFrame:
        names = self.rules.automaton.names
        schema = pl.Schema({MATCH: pl.Int64(), STEP: pl.String(), AT: pl.Int64(), **self.schema})
        rows = [
            (number, names[node.step], match.at, *node.event.row)
            for number, (_, match) in enumerate(found)
            for node in reversed(list(chain(match.node)))
        ]
        return pl.DataFrame(rows, schema=schema, orient="row")


def check_types(schema: pl.Schema) -> None:
    """Refuses columns whose values would not come back from stored state as they were."""
    for name, dtype in schema.items():
        if not _storable(dtype):
            raise DefinitionError(
                f"a pattern remembers whole rows, but {name} is {dtype}, which cannot be stored; cast it, or select() other columns"
            )


def _storable(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.List):
        return _storable(dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner())
    if isinstance(dtype, pl.Struct):
        return all(_storable(field.dtype if isinstance(field.dtype, pl.DataType) else field.dtype()) for field in dtype.fields)
    if isinstance(dtype, pl.Datetime):
        return dtype.time_zone is not None
    return dtype.is_integer() or dtype.is_float() or isinstance(dtype, _PLAIN)
