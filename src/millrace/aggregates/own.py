"""User-defined aggregates: a class in plain Python, and its adapter to columns."""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import polars as pl

from millrace.aggregates.arguments import Argument, IntoExpr, parse_arguments
from millrace.aggregates.contract import Reduction
from millrace.errors import DefinitionError
from millrace.values import function_results


class Aggregate(ABC):
    """A user-defined aggregate. Subclass it, set `returns`, and implement four methods.

        class Range(Aggregate):
            returns = pl.Float64()

            def create(self): return (math.inf, -math.inf)
            def add(self, state, value): return min(state[0], value), max(state[1], value)
            def merge(self, one, other): return min(one[0], other[0]), max(one[1], other[1])
            def result(self, state): return state[1] - state[0]

        stream.group_by("line").aggregate(range=Range("speed"))

    Rows are added in any order, to any number of states, and states are merged in any order: the result must
    not depend on it. `add` and `merge` may change and return the (first) state they are given. With one
    column, `add` is called with the values that are not null; with several columns, with dictionaries.
    """

    returns: pl.DataType
    """The type of the result."""
    ordered = False
    """True: values of one batch are added in order of event time, topic, partition, offset."""
    reproducible = True
    """False: the result may depend on how rows were batched.
    Then no aggregation may follow, and nothing can be retracted.
    """

    columns: tuple[str, ...]
    """What its values are called: the columns, or the names of the expressions."""
    argument: Argument | None = None
    """What it is computed of, where that is not plain columns."""

    def __init__(self, *columns: IntoExpr, where: IntoExpr | None = None) -> None:
        """`columns` are what the aggregate is computed of, at least one: names, or expressions.
        Only rows for which `where` holds count.
        """
        if not columns:
            raise DefinitionError(f"{type(self).__name__}() needs the name of at least one column")
        names, argument = parse_arguments(type(self).__name__, columns, where)
        self.columns = tuple(dict.fromkeys(names))
        if argument is not None:
            self.argument = argument

    @abstractmethod
    def create(self) -> Any:
        """The state without any value."""

    @abstractmethod
    def add(self, state: Any, value: Any) -> Any:
        """The state after one more value."""

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """The state of the values of both."""

    @abstractmethod
    def result(self, state: Any) -> Any:
        """The value of the aggregate."""

    def add_all(self, state: Any, values: Any) -> Any:
        """Adds many values; override it where that is faster.
        A `pl.Series` without nulls, or a `pl.DataFrame` of several columns.
        """
        for value in values if isinstance(values, pl.Series) else values.iter_rows(named=True):
            state = self.add(state, value)
        return state

    def retract(self, state: Any, value: Any) -> Any:
        """The inverse of `add`, if there is one. The state may not hold the value yet: the two may be merged
        later.

        Without it, an aggregation over other aggregations keeps their values, and is computed again when one
        of them changes.
        """
        raise NotImplementedError

    def begin(self) -> Any:
        """A new state that `add` may change: a copy where `create` returns the same object each time."""
        state = self.create()
        return state if state is not self.create() else self.decode(self.encode(state))

    def encode(self, state: Any) -> bytes:
        """The bytes of a state; by default, pickled."""
        return pickle.dumps(state, protocol=5)

    def decode(self, data: bytes) -> Any:
        """The inverse of `encode`."""
        return pickle.loads(data)  # noqa: S301 - bytes of our own state and shuffle

    def check(self, schema: pl.Schema) -> None:  # noqa: B027 - most take any column
        """Raises `DefinitionError` for columns to which the aggregate does not apply."""

    def type_of(self, dtype: pl.DataType) -> pl.DataType:
        """The type of the result for a column of type `dtype`; by default `returns`."""
        return self.returns

    def settings(self) -> Mapping[str, Any]:
        """What the aggregate was made with, besides its columns.

        State fits an aggregate of the same class name, columns and settings. Override it to leave out what
        changes no state.
        """
        return {
            name: value for name, value in sorted(vars(self).items()) if name not in ("columns", "argument")
        }

    def __str__(self) -> str:
        """As users write it."""
        values = list(self.argument.value_texts.values()) if self.argument else map(repr, self.columns)
        settings = [f"{name}={value!r}" for name, value in self.settings().items()]
        where = self.argument.where_texts if self.argument else []
        return f"{type(self).__name__}({', '.join([*values, *settings, *where])})"


class BatchAggregate(Aggregate):
    """An aggregate of the package whose states are made for all groups of a batch at once: a series per group
    would cost many times as much as the few values that it holds.
    """

    @abstractmethod
    def add_groups(self, groups: pl.Series) -> Iterable[Any]:
        """For each list of values, none of them null, the state of them."""

    def merge_all(self, states: Iterator[Any]) -> Any:
        """The state of the values of all states, at least one."""
        return reduce(self.merge, states)


@dataclass(frozen=True)
class Own(Reduction):
    """Adapts a user-defined aggregate to columns: its partials are encoded states."""

    inner: Aggregate = field(kw_only=True)

    @property
    def additive(self) -> bool:  # type: ignore[override] # depends on the user's class
        """Whether the class implements `retract`."""
        return type(self.inner).retract is not Aggregate.retract and not self.inner.ordered

    @property
    def ordered(self) -> bool:  # type: ignore[override] # likewise
        """As the user says."""
        return self.inner.ordered

    @property
    def reproducible(self) -> bool:  # type: ignore[override] # likewise
        """As the user says."""
        return self.inner.reproducible

    def input_columns(self) -> list[str]:
        """The columns it reads, or the one that holds them all."""
        return list(self.inner.columns) if self.argument is None else super().input_columns()

    def check(self, schema: pl.Schema) -> None:
        """The checks of the class, and that it has a result type."""
        if (
            not isinstance(getattr(self.inner, "returns", None), pl.DataType)
            and type(self.inner).type_of is Aggregate.type_of
        ):
            raise DefinitionError(
                f"{self}: {type(self.inner).__name__} has no result type; add returns = "
                "pl.Float64(), or the like"
            )
        self.inner.check(self._values_schema(schema))

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The state of the rows of a group."""
        return [_each_group(self._values, self._add_rows, f"{name}.v")]

    def retract(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """An empty state from which the rows of a group are retracted."""
        return [_each_group(self._values, self._retract_rows, f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The merged state of a group."""
        return [_each_group(pl.col(f"{name}.v").drop_nulls(), self._merge_states, f"{name}.v")]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The values of the states, as exactly the declared type."""
        inner, returns = self.inner, self.inner.type_of(dtype)

        def answers(states: pl.Series) -> pl.Series:
            results = [None if data is None else inner.result(inner.decode(data)) for data in states]
            try:
                return pl.Series(results, dtype=returns)
            except TypeError:  # whole numbers for floats, or the reverse
                return function_results.to_series(name, results, returns)

        return pl.col(f"{name}.v").map_batches(answers, return_dtype=returns).alias(name)

    def __str__(self) -> str:
        """As users write it."""
        return str(self.inner)

    @property
    def _values(self) -> pl.Expr:
        """The values of a group: those that are not null, or of several columns whole rows."""
        is_one = len(self.inner.columns) == 1 or self.argument is not None
        return pl.col(self.input_columns()[0]).drop_nulls() if is_one else pl.struct(self.inner.columns)

    def _add_rows(self, groups: pl.Series) -> Iterator[bytes]:
        if isinstance(self.inner, BatchAggregate):
            return map(self.inner.encode, self.inner.add_groups(groups.alias(self.inner.columns[0])))
        return (
            self.inner.encode(self.inner.add_all(self.inner.begin(), self._as_argument(values)))
            for values in groups
        )

    def _retract_rows(self, groups: pl.Series) -> Iterator[bytes]:
        for group in groups:
            state, values = self.inner.begin(), self._as_argument(group)
            for value in values if isinstance(values, pl.Series) else values.iter_rows(named=True):
                state = self.inner.retract(state, value)
            yield self.inner.encode(state)

    def _as_argument(self, values: pl.Series) -> pl.Series | pl.DataFrame:
        """The values of one group, as `add_all` takes them."""
        return values.alias(self.inner.columns[0]) if len(self.inner.columns) == 1 else values.struct.unnest()

    def _values_schema(self, schema: pl.Schema) -> pl.Schema:
        """The types of its values, under the names that the class knows."""
        if self.argument is None:
            return schema
        dtype = schema[self.required_column]
        if len(self.inner.columns) == 1:
            return pl.Schema({self.inner.columns[0]: dtype})
        return pl.Schema({field.name: field.dtype for field in dtype.fields})  # type: ignore[attr-defined] # a struct

    def _merge_states(self, groups: pl.Series) -> Iterator[bytes | None]:
        for states in groups.to_list():
            if len(states) < 2:
                yield states[0] if states else None
            else:
                yield self.inner.encode(self._merge_all(map(self.inner.decode, states)))

    def _merge_all(self, states: Iterator[Any]) -> Any:
        if isinstance(self.inner, BatchAggregate):
            return self.inner.merge_all(states)
        return reduce(self.inner.merge, states)


def _each_group(
    values: pl.Expr, function: Callable[[pl.Series], Iterable[bytes | None]], name: str
) -> pl.Expr:
    """What a function makes of the lists of all groups: polars calls it once, not once per group."""

    def states(groups: pl.Series) -> pl.Series:
        return pl.Series([*function(groups)], dtype=pl.Binary)

    lists = values.implode()
    return lists.map_batches(states, return_dtype=pl.Binary, is_elementwise=True).alias(name)


def own(aggregate: Aggregate) -> Own:
    """The adapter of a user-defined aggregate."""
    columns = aggregate.columns
    is_plain = len(columns) == 1 and aggregate.argument is None
    return Own(columns[0] if is_plain else None, inner=aggregate, argument=aggregate.argument)
