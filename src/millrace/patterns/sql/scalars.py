"""Operators and functions of SQL on single values, and their types. None stands for null."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any

import polars as pl
from sqlglot import exp

from millrace.errors import DefinitionError

ValueType = pl.DataType


def divide(left: Any, right: Any) -> Any:
    """Division. Whole numbers give a whole number, truncated towards zero; division by zero fails."""
    if right == 0:
        raise DefinitionError(f"{left} / {right}: division by zero; guard it with NULLIF(…, 0)")
    if isinstance(left, int) and isinstance(right, int):
        whole = abs(left) // abs(right)
        return whole if (left < 0) == (right < 0) else -whole
    return left / right


def remainder(left: Any, right: Any) -> Any:
    """The remainder, with the sign of the dividend."""
    return (
        math.fmod(left, right)
        if isinstance(left, float) or isinstance(right, float)
        else left - right * divide(left, right)
    )


def matches_like(text: str, pattern: str) -> bool:
    """LIKE: % stands for any text, _ for any character."""
    parts = (".*" if sign == "%" else "." if sign == "_" else re.escape(sign) for sign in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def trim_function(position: str | None) -> Callable[..., str]:
    """TRIM: a function that removes white space, or given characters, from one end of a text or both."""
    strip = {"LEADING": str.lstrip, "TRAILING": str.rstrip}.get(str(position), str.strip)
    return lambda text, signs=None: strip(text, signs)


def substring(text: str, start: int, length: int | None = None) -> str:
    """SUBSTRING: counted from 1, or from the end if negative; empty outside of the text."""
    if start == 0 or -start > len(text):
        return ""
    begin = start - 1 if start > 0 else len(text) + start
    return text[begin:] if length is None else text[begin : begin + max(length, 0)]


def round_half_up(value: Any, digits: int = 0) -> Any:
    """ROUND, with halves away from zero."""
    if isinstance(value, int):
        unit = 10 ** max(-digits, 0)
        whole = (abs(value) + unit // 2) // unit * unit
        return whole if value >= 0 else -whole
    factor = 10.0**digits
    scaled = abs(value) * factor
    if not math.isfinite(scaled):
        return value
    below = math.floor(scaled)
    return math.copysign((below + (scaled - below >= 0.5)) / factor, value)


BINARY_OPERATORS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}
"""Those that Python computes alike on single values and on polars expressions."""
STRICT_FUNCTIONS: dict[type[exp.Expr], Callable[..., Any]] = {
    **BINARY_OPERATORS,
    exp.Div: divide,
    exp.Mod: remainder,
    exp.Neg: operator.neg,
    exp.Abs: abs,
    exp.Sqrt: math.sqrt,
    exp.Pow: math.pow,
    exp.Ceil: math.ceil,
    exp.Floor: math.floor,
    exp.Round: round_half_up,
    exp.Lower: str.lower,
    exp.Upper: str.upper,
    exp.Length: len,
    exp.Trim: trim_function(None),
    exp.Substring: substring,
    exp.DPipe: operator.add,
    exp.Concat: lambda *parts: "".join(map(str, parts)),
    exp.Like: matches_like,
    exp.Greatest: max,
    exp.Least: min,
    exp.StartsWith: str.startswith,
}
"""Functions that are null as soon as one argument is."""


def function_of(node: exp.Expr) -> Callable[..., Any]:
    """The function of a strict node, with its keywords applied, such as LEADING in TRIM."""
    apply, words = (
        STRICT_FUNCTIONS[type(node)],
        {name: word for name, word in node.args.items() if word and not isinstance(word, exp.Expr | list)},
    )
    if words.pop("negate", False):
        return lambda *values: not apply(*values)
    if isinstance(node, exp.Trim):
        return trim_function(words.pop("position", None))
    check_arguments(node, words)
    return apply


def check_arguments(node: exp.Expr, words: Mapping[str, Any]) -> None:
    """Refuses arguments that would be ignored, such as those of other dialects."""
    unknown = [name for name in words if name not in ("safe", "typed", "coalesce", "big_int")]
    if unknown:
        raise DefinitionError(
            f"{node.sql()}: {', '.join(unknown)} is not known in row patterns; leave it out"
        )


_BOOLEAN = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.StartsWith)
_TEXT = (exp.Lower, exp.Upper, exp.Trim, exp.Substring, exp.Concat)
_WHOLE = (exp.Length, exp.Ceil, exp.Floor)


def type_of(node: exp.Expr, inner: list[ValueType]) -> ValueType:
    """The result type of a strict node."""
    if isinstance(node, _BOOLEAN):
        return pl.Boolean()
    if isinstance(node, _TEXT):
        return pl.String()
    if isinstance(node, _WHOLE):
        return pl.Int64()
    if isinstance(node, exp.Sqrt | exp.Pow):
        return pl.Float64()
    return common_type(inner, node)


def common_type(types: list[ValueType], node: exp.Expr | None = None) -> ValueType:
    """The type that holds the values of all given types."""
    known_types = [one for one in types if one != pl.Null()]
    if all(one == known_types[0] for one in known_types):
        return known_types[0] if known_types else pl.Null()
    if all(one.is_numeric() for one in known_types):
        return pl.Float64() if any(one.is_float() for one in known_types) else pl.Int64()
    times = [one for one in known_types if one.is_temporal()]
    if times and all(one.is_temporal() or one.is_numeric() for one in known_types):
        return next((one for one in times if not isinstance(one, pl.Duration)), times[0])
    raise DefinitionError(
        f"{node.sql() if node else 'a value'} mixes {', '.join(sorted({str(one) for one in known_types}))}; "
        "cast one of them"
    )


def cast_function(name: str, length: int | None) -> tuple[Callable[[Any], Any], ValueType]:
    """CAST: the conversion to a type, and the polars type of its result."""
    if name in ("VARCHAR", "CHAR", "TEXT", "NVARCHAR"):
        return (lambda value: _to_text(value)[:length]), pl.String()
    if name in _INTEGERS:
        return _to_integer(_INTEGERS[name]), pl.Int64()
    if name in ("DOUBLE", "FLOAT", "DECIMAL"):
        return _to_float, pl.Float64()
    if name == "BOOLEAN":
        return _to_boolean, pl.Boolean()
    if name == "DATE":
        return (lambda value: date.fromisoformat(value) if isinstance(value, str) else value), pl.Date()
    if name.startswith("TIMESTAMP"):
        return (
            lambda value: datetime.fromisoformat(value) if isinstance(value, str) else value
        ), pl.Datetime()
    raise DefinitionError(
        f"CAST(… AS {name}) is not known; there are VARCHAR, BIGINT, DOUBLE, BOOLEAN, DATE and TIMESTAMP"
    )


_INTEGERS = {"BIGINT": 64, "INT": 32, "SMALLINT": 16, "TINYINT": 8}
"""The bits of each integer type of SQL."""


def _to_integer(bits: int) -> Callable[[Any], int]:
    def to_integer(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value) is None:
            raise ValueError(value)
        number = int(round_half_up(value) if isinstance(value, float) else value)
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise OverflowError(number)
        return number

    return to_integer


def _to_float(value: Any) -> float:
    if (
        isinstance(value, str)
        and re.fullmatch(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+|Infinity|NaN)(?:[eE][+-]?[0-9]+)?\s*", value)
        is None
    ):
        raise ValueError(value)
    return float(value)


def _to_boolean(value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value)
    truth = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}.get(value.lower())
    if truth is None:
        raise ValueError(value)
    return truth


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_interval(node: exp.Interval) -> timedelta:
    """The length of an interval such as INTERVAL '10' SECOND."""
    amount, unit = (
        node.this,
        str(node.args["unit"]).upper().rstrip("S") if node.args.get("unit") else "SECOND",
    )
    names = {
        "MILLISECOND": "milliseconds",
        "SECOND": "seconds",
        "MINUTE": "minutes",
        "HOUR": "hours",
        "DAY": "days",
        "WEEK": "weeks",
    }
    if unit not in names or not isinstance(amount, exp.Literal):
        raise DefinitionError(
            f"{node.sql()} is not a length of time; use INTERVAL '10' SECOND, MINUTE, HOUR or DAY"
        )
    try:
        return timedelta(**{names[unit]: float(amount.this)})
    except (ValueError, OverflowError) as error:
        raise DefinitionError(
            f"{node.sql()} is not a length of time; use a number such as INTERVAL '10' SECOND"
        ) from error
