"""The nodes of the graph that a stream records. They know no engine.

Every node has `identity()`, by which stored state knows it, and `describe()`, which a person reads in
`millrace explain`. The nodes that keep something per key are in `operations.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace.graph.identity import Identity, identify_watermark
from millrace.watermarks import Watermark

if TYPE_CHECKING:
    from millrace.topics import Topic


@dataclass(frozen=True)
class Description:
    """A node as a person reads it: a line, and for an operator answers to what, where, when and how."""

    title: str
    answers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Node(ABC):
    """A step of a stream. Nodes are shared, never changed, and compared by identity."""

    inputs: tuple[Node, ...]
    schema: pl.Schema
    name: str | None = field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        """Keeps the short text below: that of a dataclass would hold the whole graph before the node."""
        super().__init_subclass__()
        cls.__repr__ = Node.__repr__  # type: ignore[method-assign] # as a dataclass would, which then does not

    def __repr__(self) -> str:
        """The kind and the columns."""
        return f"{type(self).__name__}({', '.join(c for c in self.schema if not c.startswith('_'))})"

    @abstractmethod
    def identity(self) -> Identity:
        """What stored state depends on, without the inputs. See `graph/identity.py`."""

    @abstractmethod
    def describe(self) -> Description:
        """As `millrace explain` shows it."""


@dataclass(frozen=True, eq=False)
class Read(Node):
    """Rows of a topic."""

    topic: Topic
    watermark: Watermark

    def identity(self) -> Identity:
        """The topic and the watermark.
        State does not depend on them: rows are judged by the watermark of now.
        """
        return {"kind": "read", "topic": self.topic.name, "watermark": identify_watermark(self.watermark)}

    def describe(self) -> Description:
        """The topic, its type and its watermark."""
        return Description(f"read {self.topic.name} ({self.topic.type.__name__}), watermark {self.watermark}")


@dataclass(frozen=True, eq=False)
class Stateless(Node):
    """A function of columns: filter, select, and the like."""

    apply: Callable[[pl.DataFrame], pl.DataFrame]
    text: str
    """The call, as its user wrote it."""
    columns_read: frozenset[str] | None = None
    """The columns that it looks at; None: any."""
    columns_changed: frozenset[str] | None = None
    """The columns that it may give other values; None: any."""
    exprs: tuple[pl.Expr, ...] = ()
    """The expressions in it, of which `text` may leave out a part."""
    internal_identity: Mapping[str, Any] | None = None
    """The identity of a step that no user wrote; `text` is then for people alone."""

    def identity(self) -> Identity:
        """The user's call, or what a step of millrace's own does."""
        if self.internal_identity is not None:
            return dict(self.internal_identity)
        return {"kind": "step", "call": self.text}

    def describe(self) -> Description:
        """The call."""
        return Description(self.text)


@dataclass(frozen=True, eq=False)
class Arguments(Stateless):
    """The expressions that the aggregation after this is computed of, each as a column of its own.

    It is a part of that aggregation, whose identity and text quote the expressions.
    """


@dataclass(frozen=True, eq=False)
class Lookup(Stateless):
    """Columns fetched from an external service.
    The answer may change, so it cannot be computed again to be taken back.
    """


@dataclass(frozen=True, eq=False)
class PaneRows(Stateless):
    """Rows made of panes: the pairs of a join, whose panes hold both sides, or the entries of a ranking.

    The output is a changelog by row: rows that are new, and rows that no longer hold.
    """

    side_names: tuple[Mapping[str, str], Mapping[str, str]] | None = field(default=None, kw_only=True)
    """Of a join: for each side its columns, and what they are called in the result."""


@dataclass(frozen=True, eq=False)
class SingleGroup(Stateless):
    """Results without a helper column, such as the constant key of all rows as one group."""


@dataclass(frozen=True, eq=False)
class Union(Node):
    """The rows of several streams with the same columns."""

    def identity(self) -> Identity:
        """Nothing besides its inputs."""
        return {"kind": "union"}

    def describe(self) -> Description:
        """Nothing besides its inputs."""
        return Description("union")


LATE = "late"
"""The output of an operation for rows that it refuses."""


@dataclass(frozen=True, eq=False)
class Late(Node):
    """The rows that an operation refused."""

    def identity(self) -> Identity:
        """Nothing besides the operator."""
        return {"kind": "late"}

    def describe(self) -> Description:
        """What comes out of it."""
        return Description("late: the rows that were refused")


TIMEOUTS = "timeouts"
"""The output of a pattern for partial matches whose time is over."""


@dataclass(frozen=True, eq=False)
class SideOutput(Node):
    """A further output of an operation: panes, each shown once and never taken back."""

    output: str

    def identity(self) -> Identity:
        """Which output."""
        return {"kind": "side_output", "output": self.output}

    def describe(self) -> Description:
        """What comes out of it."""
        if self.output == TIMEOUTS:
            return Description("timeouts: partial matches whose time was over")
        return Description(f"{self.output}: what the operator emits besides its results")


@dataclass(frozen=True, eq=False)
class Write(Node):
    """The end of a stream: a topic."""

    topic: Topic
    rounds: int | None = None
    """How often rows may go around, where the job itself reads the topic."""

    def identity(self) -> Identity:
        """Which topic."""
        return {"kind": "write", "topic": self.topic.name, "rounds": self.rounds}

    def describe(self) -> Description:
        """The topic and its type."""
        rounds = "" if self.rounds is None else f", at most {self.rounds} times around"
        return Description(f"write {self.topic.name} ({self.topic.type.__name__}){rounds}")
