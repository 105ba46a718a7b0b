"""What is asked, of whom, and how patiently: a frozen description that travels with the job."""

from __future__ import annotations

import dataclasses
import inspect
import typing
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import polars as pl

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.values import event_types
from millrace.values.expressions import DType

OnError = Literal["null", "fail"]


class LookupOptions(TypedDict, total=False):
    """How `Stream.lookup` asks; each has a default."""

    schema: Mapping[str, DType] | type
    """The columns that an answer gives, or a dataclass of them; by default the dataclass that the function says it returns."""
    cache: int
    """How many answers a process remembers, the least recently used forgotten first (10,000); 0: none beyond the batch."""
    ttl: Duration
    """How long an answer is believed, by the batches' clock (`"10m"`)."""
    negative_ttl: Duration
    """The same for the answer None, that there is nothing (`"1m"`)."""
    timeout: Duration
    """How long one call may take (`"5s"`)."""
    retries: int
    """How often a call that failed is tried again (2)."""
    backoff: Duration
    """How long before the first retry, at most; then twice as long each time, up to 32 times (`"100ms"`)."""
    concurrency: int
    """How many calls are under way at once (16)."""
    breaker: int
    """After so many keys in a row that could not be answered, nobody is asked for a while (10)."""
    breaker_reset: Duration
    """For how long; then one key is tried, and its answer decides (`"30s"`)."""
    on_error: OnError
    """What happens to the rows of a key that could not be answered: `null` columns, or `fail`, which stops the job (`"null"`)."""
    name: str
    """What it is called in counts and messages; by default the function's name."""


@dataclass(frozen=True, kw_only=True)
class LookupSpec:
    """One lookup of one job. Times are whole milliseconds."""

    fn: Callable[..., Any]
    keys: tuple[str, ...]
    name: str
    schema: pl.Schema
    cache: int = 10_000
    ttl: int = 600_000
    negative_ttl: int = 60_000
    timeout: int = 5_000
    retries: int = 2
    backoff: int = 100
    concurrency: int = 16
    breaker: int = 10
    breaker_reset: int = 30_000
    on_error: OnError = "null"
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells it apart in the processes that it travels to."""

    @property
    def is_async(self) -> bool:
        """Whether the function is awaited; others run in threads."""
        call = getattr(self.fn, "__call__", None)  # noqa: B004 - an object whose call is awaited
        return inspect.iscoroutinefunction(self.fn) or inspect.iscoroutinefunction(call)

    def __str__(self) -> str:
        """As it is read."""
        return f"lookup({self.name}, {', '.join(map(repr, self.keys))}) giving {', '.join(self.schema)}"


_DURATION_CHECKS = {
    "ttl": durations.parse_positive,
    "negative_ttl": durations.parse_non_negative,
    "timeout": durations.parse_positive,
    "backoff": durations.parse_non_negative,
    "breaker_reset": durations.parse_positive,
}
_MINIMUMS = {"cache": 0, "retries": 0, "concurrency": 1, "breaker": 1}


def make_lookup(
    fn: Callable[..., Any], keys: tuple[str, ...], options: LookupOptions, columns: pl.Schema
) -> LookupSpec:
    """The lookup that a user asks for, of a stream with these columns; refuses what could not be asked or answered."""
    name = options.get("name") or str(getattr(fn, "__name__", type(fn).__name__))
    if not callable(fn):
        raise DefinitionError(
            f"lookup({fn!r}) is not a function; give one that takes a key and returns a dict or a dataclass"
        )
    schema = _answer_schema(fn, name, options.get("schema"))
    _check_columns(name, keys, schema, columns)
    if options.get("on_error", "null") not in typing.get_args(OnError):
        raise DefinitionError(
            f"lookup({name}): on_error={options['on_error']!r} is unknown; use 'null' or 'fail'"
        )
    if unknown := sorted(set(options) - set(LookupOptions.__annotations__)):
        raise DefinitionError(
            f"lookup({name}) has no option {unknown[0]!r}; it has {', '.join(LookupOptions.__annotations__)}"
        )
    settings: dict[str, Any] = {k: v for k, v in options.items() if k not in ("schema", "name")}
    for option, check in _DURATION_CHECKS.items():
        if option in settings:
            settings[option] = check(settings[option], name=option)
    for option, minimum in _MINIMUMS.items():
        if option in settings:
            settings[option] = durations.check_whole(settings[option], name=option, minimum=minimum)
    return LookupSpec(fn=fn, keys=keys, name=name, schema=schema, **settings)


def _check_columns(name: str, keys: tuple[str, ...], schema: pl.Schema, columns: pl.Schema) -> None:
    """Refuses keys that rows do not have, and answers that they already have."""
    if not keys:
        raise DefinitionError(
            f"lookup({name}) needs the column whose values are asked for, such as lookup({name}, 'stop_id')"
        )
    for key in keys:
        if key not in columns:
            raise DefinitionError(
                f"lookup({name}, {key!r}): there is no such column; there are {', '.join(columns)}"
            )
        if columns[key].is_nested():
            raise DefinitionError(
                f"lookup({name}, {key!r}): {key!r} is {columns[key]}; ask for single values, several if need be: lookup({name}, 'a', 'b')"
            )
    for column in schema:
        if column in columns or column.startswith("_"):
            raise DefinitionError(
                f"lookup({name}) answers {column!r}, which rows already have; give it another name, or drop the old one by select()"
            )


def _answer_schema(
    fn: Callable[..., Any], name: str, declared: Mapping[str, DType] | type | None
) -> pl.Schema:
    if isinstance(declared, Mapping):
        if not declared:
            raise DefinitionError(
                f"lookup({name}): schema={{}} names no column, so an answer would say nothing"
            )
        return pl.Schema(declared)
    kind = _return_type(fn) if declared is None else declared
    if kind is None or not dataclasses.is_dataclass(kind) or not isinstance(kind, type):
        raise DefinitionError(
            f"lookup({name}): which columns does it give? Say schema={{'name': pl.String()}}, or let the function return a dataclass, and say so: -> Stop | None"
        )
    return event_types.columns(kind)


def _return_type(fn: Callable[..., Any]) -> Any:
    """The type that a function says it returns, without `| None`."""
    try:
        hint = typing.get_type_hints(fn).get("return")
    except (NameError, TypeError):
        return None
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    return parts[0] if len(parts) == 1 and typing.get_origin(hint) is not list else hint
