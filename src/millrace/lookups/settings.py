"""The settings of a lookup, which are part of the job."""

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
from millrace.values.expressions import DType, describe_unknown

OnError = Literal["null", "fail"]


class LookupOptions(TypedDict, total=False):
    """The options of `Stream.lookup`; defaults in brackets."""

    schema: Mapping[str, DType] | type
    """The columns of an answer, or a dataclass of them (the return type of the
    function, if that is a dataclass).
    """
    cache: int
    """The number of answers that a process caches,
    least recently used evicted first (10,000); 0: only within a batch.
    """
    ttl: Duration
    """How long an answer is valid, by the clock of batches (`"10m"`)."""
    negative_ttl: Duration
    """How long the answer None is valid (`"1m"`)."""
    timeout: Duration
    """How long one call may take (`"5s"`)."""
    retries: int
    """The number of retries of a failed call (2)."""
    backoff: Duration
    """The greatest delay before the first retry; it doubles with each retry,
    up to 32 times that (`"100ms"`).
    """
    concurrency: int
    """The number of concurrent calls (16)."""
    breaker: int
    """The number of failed keys in a row that opens the circuit breaker (10)."""
    breaker_reset: Duration
    """How long the breaker refuses calls; then one key is tried, and its result decides (`"30s"`)."""
    on_error: OnError
    """The effect of a failed key: `null` columns, or `fail`, which stops the job (`"null"`)."""
    name: str
    """The name in counters and messages (the name of the function)."""


@dataclass(frozen=True, kw_only=True)
class LookupSpec:
    """One lookup of one job; durations in whole milliseconds."""

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
    """Identifies the lookup in the caches of worker processes."""

    @property
    def is_async(self) -> bool:
        """Whether the function is awaited; others run in threads."""
        call = getattr(self.fn, "__call__", None)  # noqa: B004 - an object whose call is awaited
        return inspect.iscoroutinefunction(self.fn) or inspect.iscoroutinefunction(call)

    def __str__(self) -> str:
        """As text, for `millrace explain`."""
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
    """The lookup with a user's options, on a stream with `columns`; refuses what cannot work."""
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
    """Refuses keys that are not columns, and answers whose columns exist already."""
    if not keys:
        raise DefinitionError(f"lookup({name}) needs a column of keys, such as lookup({name}, 'stop_id')")
    for key in keys:
        if key not in columns:
            raise DefinitionError(f"lookup({name}, {key!r}): {describe_unknown(key, columns)}")
        if columns[key].is_nested():
            raise DefinitionError(
                f"lookup({name}, {key!r}): {key!r} is {columns[key]}; use columns of single values, several "
                f"if need be: lookup({name}, 'a', 'b')"
            )
    for column in schema:
        if column in columns or column.startswith("_"):
            raise DefinitionError(
                f"lookup({name}) returns {column!r}, which rows already have; give it another name, or drop "
                "the old one by select()"
            )


def _answer_schema(
    fn: Callable[..., Any], name: str, declared: Mapping[str, DType] | type | None
) -> pl.Schema:
    if isinstance(declared, Mapping):
        if not declared:
            raise DefinitionError(
                f"lookup({name}): schema={{}} has no column, so an answer would be empty; name at least one"
            )
        return pl.Schema(declared)
    kind = _return_type(fn) if declared is None else declared
    if kind is None or not dataclasses.is_dataclass(kind) or not isinstance(kind, type):
        raise DefinitionError(
            f"lookup({name}): its columns are not known; give schema={{'name': pl.String()}}, or annotate "
            "the function with a dataclass: -> Stop | None"
        )
    return event_types.columns(kind)


def _return_type(fn: Callable[..., Any]) -> Any:
    """The annotated return type of a function, without `| None`."""
    try:
        hint = typing.get_type_hints(fn).get("return")
    except (NameError, TypeError):
        return None
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    return parts[0] if len(parts) == 1 and typing.get_origin(hint) is not list else hint
