"""Operations: the nodes that keep something per key. Rows or panes come in by key; panes, or rows, go out.

Each kind stands beside the others and has the fields that it uses. The engine and the model each have a
registry that names the operator for a kind: `engine/operators/__init__.py`, `testing/model/model.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl

from millrace import durations, panes
from millrace.aggregates import Reduction, Sum
from millrace.aggregates.ticks import counts_ticks
from millrace.evictors import Evictor
from millrace.graph.identity import (
    Identity,
    identify_aggregate,
    identify_evictor,
    identify_fields,
    identify_trigger,
    identify_window,
)
from millrace.graph.nodes import Arguments, Description, Node
from millrace.triggers import AfterCount, AtWatermark, Repeatedly, Trigger, has_own_trigger
from millrace.values.columns import ALL_ROWS, ARGUMENT_PREFIX
from millrace.windows import (
    Counted,
    GlobalWindow,
    Ordered,
    ProcessingTime,
    Punctuated,
    Sliding,
    Unaligned,
    WindowFn,
)

IN_ORDER = "rows are taken in order of event time, as the watermark releases them"
BEHIND = "a row behind the watermark is refused"


@dataclass(frozen=True)
class Windowing:
    """Where, when and how: what `Stream.window` sets for all that follows."""

    window: WindowFn
    trigger: Trigger = field(default_factory=AtWatermark)
    lateness: int = 0
    accumulation: panes.Accumulation = "accumulating"
    on_time: panes.OnTime = "always"
    closing: panes.Closing = "none"
    time: panes.PaneTime = "end"
    evict: Evictor | None = None
    """What leaves rows out of panes; of the first aggregation alone, as others take panes."""

    def identity(self) -> Identity:
        """The window, the trigger, and how panes refine each other."""
        evict = {} if self.evict is None else {"evict": identify_evictor(self.evict)}
        return {
            "window": identify_window(self.window),
            "trigger": identify_trigger(self.trigger),
            "lateness": self.lateness,
            "accumulation": self.accumulation,
            "on_time": self.on_time,
            "closing": self.closing,
            "time": self.time,
            **evict,
        }

    @property
    def fires_once(self) -> bool:
        """Whether a window shows one pane after its end and none after that,
        so that later rows are refused.
        """
        return isinstance(self.trigger, AtWatermark) and self.trigger.has_single_pane

    @property
    def is_append_only(self) -> bool:
        """Whether each window shows one pane, when the watermark passes its end, and nothing after that."""
        if self.is_ordered:
            return isinstance(self.window, Counted | Punctuated)
        return (
            isinstance(self.trigger, AtWatermark)
            and self.trigger.early is None
            and not (self.lateness or self.is_processing_time)
            and self.closing != "always"
            and self.time == "end"
        )

    @property
    def is_processing_time(self) -> bool:
        """Whether windows lie in processing time."""
        return isinstance(self.window, ProcessingTime)

    @property
    def assigner(self) -> WindowFn:
        """The windows, whatever time they lie in."""
        return self.window.window if isinstance(self.window, ProcessingTime) else self.window

    @property
    def is_ordered(self) -> bool:
        """Whether rows are taken one after the other, and decide themselves where windows end."""
        return isinstance(self.assigner, Ordered)

    @property
    def is_unwindowed(self) -> bool:
        """Whether there is one window for all time, which shows in each batch what the batch changed."""
        return self == UNWINDOWED

    @property
    def sliced_window(self) -> Sliding | None:
        """The windows, where slices suffice to compute them: sliding ones that show each pane when the
        watermark or a late row says so.
        """
        is_plain_trigger = (
            isinstance(self.trigger, AtWatermark)
            and self.trigger.early is None
            and (self.trigger.late is None or (self.fires_once and not self.lateness))
        )
        is_default_output = (
            self.accumulation != "discarding" and self.closing != "always" and self.time == "end"
        ) and self.evict is None
        return (
            self.window
            if is_plain_trigger and is_default_output and isinstance(self.window, Sliding)
            else None
        )

    def non_default_settings(self) -> Iterator[str]:
        """What was not left as it usually is, as text."""
        if self.on_time != "always":
            yield "on time only if something is new"
        if self.closing == "none" and self.sliced_window is None and not self.is_ordered:
            yield "no last pane when the window is dropped, though something is new"
        if self.closing == "always":
            yield "a last pane when the window is dropped"
        if self.time != "end":
            yield f"at the time of the {self.time} new row"
        if self.evict is not None:
            yield f"of the rows that evictors.{self.evict} keeps"


UNWINDOWED = Windowing(GlobalWindow(), Repeatedly(AfterCount(1)), closing="if_new")
"""One window for all time, which shows in each batch what the batch changed."""


@dataclass(frozen=True, eq=False)
class Operation(Node):
    """Keeps something per key."""

    keys: tuple[str, ...]
    parallelism: int | None = field(default=None, kw_only=True)
    """Over how many of a run's slots its keys are spread; None: over all of them."""

    kind: ClassVar[str]
    """The word for it in stored state and in default operator ids, such as `job/aggregation-1`."""
    verb: ClassVar[str]
    """The word for it in `explain`."""
    takes_changelog: ClassVar[bool] = False
    """Whether what comes in is a changelog, whatever it is made of."""
    takes_both: ClassVar[bool] = False
    """Whether rows come in as rows, and changelogs as changelogs, each by its own edge."""

    def identity(self) -> Identity:
        """The kind, the keys, and what the kind adds."""
        return {"kind": self.kind, "keys": list(self.keys), **self.settings()}

    @abstractmethod
    def settings(self) -> Identity:
        """The part of the identity that only this kind has."""

    def expressions(self) -> Mapping[str, Any]:
        """For each part of the identity that quotes expressions: those,
        as their text may leave out a part of them.
        """
        return {}

    def describe(self) -> Description:
        """The verb, answers to what, where, when and how, and whether what it gives is ever taken back."""
        gives = (
            "rows, each shown once" if self.is_append_only else "a changelog: values, and those they replace"
        )
        return Description(self.verb, (*self._answers(), ("gives", gives)))

    @abstractmethod
    def _answers(self) -> Iterator[tuple[str, str]]: ...

    @property
    def by(self) -> str:
        """The keys, as text."""
        return "of all rows" if self.keys == (ALL_ROWS,) else f"by {', '.join(self.keys)}"

    def count_slots(self, slots: int) -> int:
        """How many slots of a run hold its keys."""
        return slots if self.parallelism is None else min(self.parallelism, slots)

    @property
    def state_form(self) -> int:
        """The form in which it keeps what it remembers; state of another form cannot be read."""
        return 1

    @property
    def broadcast_input(self) -> int | None:
        """The input whose rows concern all keys, if there is one."""
        return None

    @property
    def lateness(self) -> int:
        """How long after its end a window may still change."""
        return 0

    @property
    def row_lateness(self) -> int:
        """How far behind the watermark, counted from the end of its window, a row may still be taken."""
        return 0

    @property
    def needs_clock(self) -> bool:
        """Whether time alone, without any row, may bring something about."""
        return False

    @property
    def accumulation(self) -> panes.Accumulation:
        """How panes refine each other."""
        return "accumulating"

    @property
    def input_columns(self) -> frozenset[str] | None:
        """The columns that it looks at, besides those that go on with the row; None: all of them."""
        return None

    @property
    def forwards_rows(self) -> bool:
        """Whether rows go on as rows, so that whatever follows judges them by the
        partitions that they come from.
        """
        return False

    @property
    def is_append_only(self) -> bool:
        """Whether its results are rows with a place in event time, each shown once and never taken back."""
        return True

    @property
    def gives_single_rows(self) -> bool:
        """Whether its changelog adds and takes back rows, rather than values of a key or window."""
        return False

    @property
    def output_delay(self) -> int:
        """How far behind the watermark the event time of a result may be: what follows must wait as long."""
        return 0

    @property
    def emits_in_order(self) -> bool:
        """Whether results of one key and one time are emitted together, in an order that has a meaning."""
        return False

    @property
    def is_bounded(self) -> bool:
        """Whether a time comes after which a result is no longer corrected."""
        return True


@dataclass(frozen=True, eq=False)
class Aggregation(Operation):
    """Aggregates per key and window."""

    aggregates: Mapping[str, Reduction]
    windowing: Windowing
    same_window: bool = False
    """Whether the input is panes of this very windowing, which keep their window."""
    over_rows: bool = True
    """Whether rows come in, rather than panes."""
    over_corrections: bool = False
    """Whether what comes in may be taken back."""

    kind = "aggregation"
    verb = "aggregate"

    @property
    def sets_windows(self) -> bool:
        """Whether what comes in is put into windows, rather than having some or needing none."""
        return self.over_rows or not (self.same_window or self.windowing.is_unwindowed)

    @property
    def state_form(self) -> int:
        """Changes were kept window by window in form 1, and are kept slice by slice now."""
        return 2 if self.sets_windows and not self.over_rows else 1

    def settings(self) -> Identity:
        """The aggregates, in order, and the windowing."""
        aggregates = []
        for name, aggregate in self.aggregates.items():
            fields = identify_fields(self.schema[name])
            entry = {"name": name, **identify_aggregate(aggregate)}
            if isinstance(aggregate, Sum) and counts_ticks(self.schema[name]):
                entry["sums"] = "ticks"
            aggregates.append(entry if fields is None else {**entry, "fields": fields})
        return {"aggregates": aggregates, "windowing": self.windowing.identity()}

    def expressions(self) -> Mapping[str, Any]:
        """Those in the window, and those that each aggregate is computed of."""
        arguments = {
            f"aggregates/{name}": aggregate.argument.exprs
            for name, aggregate in self.aggregates.items()
            if aggregate.argument is not None
        }
        return {"windowing": self.windowing, **arguments}

    @property
    def takes_whole_rows(self) -> bool:
        """Whether a user's code is given rows with all their columns."""
        return has_own_trigger(self.windowing.trigger) or (
            self.evict is not None and self.evict.columns is None
        )

    @property
    def row_schema(self) -> pl.Schema:
        """The columns of rows, as a user's code is given them."""
        columns = self.inputs[0].schema.items()
        return pl.Schema(
            {
                name: dtype
                for name, dtype in columns
                if name != ALL_ROWS and not name.startswith(ARGUMENT_PREFIX)
            }
        )

    def add_arguments(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows as a user's code has left them, with the columns that aggregates of expressions read."""
        step = self.inputs[0]
        return step.apply(rows) if isinstance(step, Arguments) else rows

    @property
    def evict(self) -> Evictor | None:
        """What leaves rows out of panes."""
        return self.windowing.evict if self.over_rows else None

    @property
    def lateness(self) -> int:
        """The lateness of the windowing."""
        return self.windowing.lateness

    @property
    def row_lateness(self) -> int:
        """The lateness of the windowing; none where a window has one pane,
        after which it takes no more rows.
        """
        return 0 if self.windowing.fires_once else self.windowing.lateness

    @property
    def is_append_only(self) -> bool:
        """Whether a window shows a single pane, and nothing that is aggregated may be corrected."""
        return not self.over_corrections and self.windowing.is_append_only

    @property
    def is_bounded(self) -> bool:
        """Windows end, unless there is one for all time."""
        return not isinstance(self.windowing.assigner, GlobalWindow)

    @property
    def needs_clock(self) -> bool:
        """Whether windows lie in processing time, or the trigger waits for it."""
        return self.windowing.is_processing_time or self.windowing.trigger.waits_for_clock

    @property
    def accumulation(self) -> panes.Accumulation:
        """That of the windowing."""
        return self.windowing.accumulation

    @property
    def input_columns(self) -> frozenset[str] | None:
        """Keys, and what the aggregates read; all where windows or a user's code ask the rows."""
        if isinstance(self.windowing.assigner, Ordered | Unaligned) or self.takes_whole_rows:
            return None
        evicted_by = () if self.evict is None else self.evict.columns or ()
        reads = (one.input_columns() for one in self.aggregates.values())
        return frozenset(self.keys).union(evicted_by, *reads)

    def _answers(self) -> Iterator[tuple[str, str]]:
        windowing = self.windowing
        aggregates = ", ".join(f"{name} = {aggregate}" for name, aggregate in self.aggregates.items())
        yield "what", f"{aggregates} {self.by}"
        if windowing.is_unwindowed:
            yield "where", "all time: of each key what there is of it is kept for ever"
            yield "when", "in each batch that changes it"
            yield "lateness", "no row is refused"
            return
        yield (
            "where",
            f"{'the window that the panes come in, ' if self.same_window else ''}{windowing.window}",
        )
        yield "when", f"{windowing.trigger}{', with the panes that come in' if self.same_window else ''}"
        yield "how", ", ".join([f"{windowing.accumulation} panes", *windowing.non_default_settings()])
        lateness = f"a row is refused {durations.format_millis(windowing.lateness)} after its window's end"
        over_panes = "panes are never refused: they correct those that came before"
        yield "lateness", lateness if self.over_rows else over_panes
