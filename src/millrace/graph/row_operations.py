"""Operations over rows: patterns, deduplication, processors, and what makes rows of a changelog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from millrace import durations
from millrace.errors import DefinitionError
from millrace.graph.identity import (
    Identity,
    identify_pattern,
    identify_processor,
    identify_row_pattern,
)
from millrace.graph.nodes import Node, SideOutput
from millrace.graph.operations import BEHIND, IN_ORDER, Operation
from millrace.patterns.builder import Pattern
from millrace.patterns.sql.clause import RowPattern
from millrace.processors import Processor


@dataclass(frozen=True, eq=False)
class MatchPattern(Operation):
    """Sequences of events per key: the windows are matches, each shown once."""

    pattern: Pattern
    select: Mapping[str, pl.Expr]

    kind = "match"
    verb = "match"

    def settings(self) -> Identity:
        """The pattern, and the columns shown of a match."""
        shown = {name: str(expr) for name, expr in self.select.items()}
        return {"pattern": identify_pattern(self.pattern), "shown": shown}

    def expressions(self) -> Mapping[str, Any]:
        """Conditions, and the columns shown."""
        return {"pattern": self.pattern, "shown": self.select}

    @property
    def output_delay(self) -> int:
        """A match lies at its last event, and may be certain only when the bound of the pattern is over."""
        return self.pattern.match_delay

    def _answers(self) -> Iterator[tuple[str, str]]:
        yield "what", f"{', '.join(f'{name} = {expr}' for name, expr in self.select.items())} {self.by}"
        yield "where", str(self.pattern)
        yield "when", IN_ORDER
        yield "lateness", BEHIND


@dataclass(frozen=True, eq=False)
class MatchRecognize(Operation):
    """Row patterns of SQL per key: the windows are matches, each shown once."""

    row_pattern: RowPattern

    kind = "match_recognize"
    verb = "match"

    def settings(self) -> Identity:
        """The clauses."""
        return {"pattern": identify_row_pattern(self.row_pattern)}

    @property
    def output_delay(self) -> int:
        """A match lies at its last row, and may be certain only when the bound of the pattern is over."""
        return self.row_pattern.span or 0

    def _answers(self) -> Iterator[tuple[str, str]]:
        measures = ", ".join(f"{name} = {expr}" for name, expr in self.row_pattern.measures.items())
        yield "what", f"{measures} {self.by}"
        yield "where", str(self.row_pattern)
        yield "when", IN_ORDER
        yield "lateness", BEHIND


@dataclass(frozen=True, eq=False)
class Deduplication(Operation):
    """Rows without their copies. They stay rows."""

    columns: tuple[str, ...]
    within: int

    kind = "deduplicate"
    verb = "deduplicate"

    def settings(self) -> Identity:
        """What copies have in common, and how far they may be apart."""
        return {"columns": list(self.columns), "within": self.within}

    @property
    def identity_columns(self) -> list[str]:
        """What copies have in common."""
        return list(dict.fromkeys([*self.keys, *self.columns]))

    @property
    def is_immediate(self) -> bool:
        """Whether copies have the same event time, so that the first to come is the first there is."""
        return "event_time" in self.columns

    @property
    def input_columns(self) -> frozenset[str] | None:
        """What copies have in common; all where rows wait, as they are kept whole."""
        return frozenset(self.identity_columns) if self.is_immediate else None

    @property
    def forwards_rows(self) -> bool:
        """Rows go on as rows."""
        return True

    def _answers(self) -> Iterator[tuple[str, str]]:
        within = durations.format_millis(self.within)
        yield "what", f"the first of rows with equal {', '.join(self.identity_columns)}"
        yield (
            "when",
            "at once" if self.is_immediate else f"{within} apart, {IN_ORDER.removeprefix('rows are taken ')}",
        )
        yield "lateness", f"a row is refused {within} behind the watermark" if self.is_immediate else BEHIND


@dataclass(frozen=True, eq=False)
class Process(Operation):
    """A user's own code per key, with state and timers; the second input,
    where there is one, goes to every slot.
    """

    processor: Processor
    side_schemas: Mapping[str, pl.Schema] = field(default_factory=dict)
    """The columns of its further outputs."""

    kind = "process"
    verb = "process"

    def settings(self) -> Identity:
        """The processor, and what it keeps."""
        return {"processor": identify_processor(self.processor)}

    @property
    def broadcast_input(self) -> int | None:
        """A broadcast concerns all keys."""
        return 1

    @property
    def emits_in_order(self) -> bool:
        """What one call emits stays in that order."""
        return True

    @property
    def needs_clock(self) -> bool:
        """Timers in processing time may be set at any time."""
        return True

    def _answers(self) -> Iterator[tuple[str, str]]:
        yield "what", f"{self.processor} {self.by}"
        yield "when", f"{IN_ORDER}; timers when they are due"
        yield "lateness", BEHIND


@dataclass(frozen=True, eq=False)
class FinalValues(Operation):
    """Of a changelog the rows that hold when their windows can no longer change."""

    kind = "final"
    verb = "final"
    takes_changelog = True

    def settings(self) -> Identity:
        """The columns, which tell rows apart."""
        return {"columns": [name for name in self.schema if name not in self.keys]}

    def _answers(self) -> Iterator[tuple[str, str]]:
        yield "what", "the rows that hold in the end, each once"
        yield "when", "the watermark has passed the end of their window and its lateness"


def side_output(node: Node, name: str) -> SideOutput:
    """A further output of a processor; refuses what has none of this name."""
    if not isinstance(node, Process):
        raise DefinitionError(
            f"side_output({name!r}) follows process(): it is what that processor emits besides its results"
        )
    if name not in node.side_schemas:
        raise DefinitionError(
            f"side_output({name!r}): {node.processor} has "
            f"{', '.join(map(repr, node.side_schemas)) or 'no side outputs'}"
        )
    return SideOutput((node,), node.side_schemas[name], name)
