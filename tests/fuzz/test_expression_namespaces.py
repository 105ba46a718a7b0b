"""Every method of polars' namespaces for text, times, lists, arrays, structs, categories and bytes: what a
batch's cut changes is refused, all else is taken.
"""

import inspect
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace.errors import DefinitionError
from millrace.values import expressions


@dataclass
class Row:
    word: str
    n: int
    words: list[str]
    numbers: list[int]
    at: datetime


ROWS = mr.Topic("rows", Row)
N = 12
FRAME = pl.DataFrame(
    {
        "word": ["a b", "2024-01-0", "{}", "7", "Ab-7", "07", "b", "a", "", "zz", "12:30", "0x1f"],
        "n": [3, 1, 2, 0, 1, 2, 5, 4, 3, 2, 1, 0],
        "words": [["a", "b"], ["b"], [], ["c", "a", "a"], ["z"], ["b", "a"]] * 2,
        "numbers": [[1, 2, 3], [4], [], [5, 5], [6, 1], [2]] * 2,
        "at": [datetime(2024, 1, 1 + i, i, 7 * i % 60, tzinfo=UTC) for i in range(N)],
        "event_time": list(range(N)),
        "ingestion_time": list(range(N)),
    },
    schema_overrides={"at": pl.Datetime("ms", "UTC")},
)
WORD, NUMBER, AT = pl.col("word"), pl.col("n"), pl.col("at")
SUBJECTS: dict[str, list[pl.Expr]] = {
    "str": [WORD, NUMBER.cast(pl.String), AT.dt.to_string("%Y-%m-%d"), pl.format('"{}"', "n")],
    "dt": [
        AT,
        AT.dt.date(),
        AT.dt.time(),
        AT - datetime(2024, 1, 1, tzinfo=UTC),
        AT.dt.replace_time_zone(None),
    ],
    "list": [pl.col("numbers"), pl.col("words"), pl.col("numbers").cast(pl.List(pl.Boolean))],
    "arr": [
        pl.concat_arr("n", pl.lit(2, pl.Int64)),
        pl.concat_arr("word", "word"),
        pl.concat_arr(NUMBER > 1, NUMBER > 2),
    ],
    "struct": [pl.struct("word", "n")],
    "cat": [WORD.cast(pl.Categorical), WORD.str.slice(0, 1).cast(pl.Categorical)],
    "bin": [WORD.cast(pl.Binary), NUMBER.cast(pl.String).cast(pl.Binary)],
}
VALUES: list[Any] = [
    *("a", "%Y-%m-%d", "%H:%M", "$.a", "1d", "hex", "UTC", "(a)", "word", "us"),
    *(
        0,
        1,
        2,
        True,
        None,
        WORD,
        NUMBER,
        pl.lit(1),
        pl.lit("b"),
        pl.element(),
        pl.element() == pl.element().max(),
        pl.col("numbers"),
    ),
    *(["a", "b"], ["n"], [0], {"a": "b"}, pl.Int64, pl.Int32, lambda i: f"f{i}", b"a"),
]
"""The values tried for each argument."""

FEW: list[Any] = ["a", 0, 1, WORD, NUMBER, "%Y-%m-%d", pl.lit(1), {"a": "b"}]
"""The values tried for each of two arguments."""


def make_calls(subject: pl.Expr, namespace: str, method: str) -> Iterator[pl.Expr]:
    """Calls of a method with each of the values for its first two arguments,
    and with each option inverted.
    """
    call = getattr(getattr(subject, namespace), method)
    parameters = [p for p in inspect.signature(call).parameters.values() if p.kind is not p.VAR_KEYWORD]
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    options = [p for p in parameters if p.default is not p.empty]
    tuples = list(
        itertools.product(
            (VALUES + [timedelta(hours=1)] * (namespace == "dt")) if len(needed) < 2 else FEW,
            repeat=min(len(needed), 2),
        )
    )
    for values in tuples:
        filled = (*values, *values[-1:] * (len(needed) - len(values)))
        given = {
            p.name: value for p, value in zip(needed, filled, strict=True) if p.kind is not p.POSITIONAL_ONLY
        }
        for option in [None, *options] if len(needed) < 2 else [None]:
            for value in (
                [not option.default]
                if option and isinstance(option.default, bool)
                else VALUES
                if option
                else [None]
            ):
                try:
                    yield call(**given, **({option.name: value} if option else {}))
                except BaseException:  # noqa: BLE001 - panics among them
                    continue


def depends_on_batches(expr: pl.Expr) -> bool | None:
    """Whether the result depends on batches; None where the call fails, or has no value for each row."""
    try:
        FRAME.clear().with_columns(x=expr)  # a batch may be empty
        whole = FRAME.select(x=expr)["x"]
    except BaseException:  # noqa: BLE001 - panics among them
        return None
    if len(whole) != N and len(whole) != 1:
        return True
    whole = FRAME.with_columns(x=expr)["x"]
    for order, cuts in ((range(N), (0, 1, 3, N)), (range(N - 1, -1, -1), (0, 5, 6, N))):
        frame = FRAME[list(order)]
        try:
            parts = [frame[start:end].with_columns(x=expr)["x"] for start, end in itertools.pairwise(cuts)]
        except BaseException:  # noqa: BLE001 - panics among them
            return None
        if (
            not pl.concat(parts).equals(whole[list(order)], check_dtypes=True, null_equal=True)
            if len({p.dtype for p in parts}) == 1
            else True
        ):
            return True
    return False


def sample_calls(namespace: str, method: str) -> Iterator[pl.Expr]:
    """Some calls of the method, on each subject."""
    for subject in SUBJECTS[namespace]:
        calls = list({str(expr): expr for expr in make_calls(subject, namespace, method)}.values())
        random.Random(method).shuffle(calls)
        yield from calls[:20]


METHODS = [
    (namespace, m) for namespace in SUBJECTS for m in dir(getattr(WORD, namespace)) if not m.startswith("_")
]
STRICT = {
    ("str", "to_date"): "without a format, it is found out from the first rows",
    ("str", "to_datetime"): "the same",
    ("dt", "is_business_day"): "polars does not say that it looks at no other row",
    ("list", "concat"): "a Series may have a value for each row of the batch",
}
"""Methods that are refused although some of their calls do not look at other rows."""


@pytest.mark.parametrize(("namespace", "method"), METHODS)
@pytest.mark.filterwarnings("ignore")
def test_a_method_is_accepted_if_its_result_does_not_depend_on_batches(namespace: str, method: str) -> None:
    answered = 0
    for expr in sample_calls(namespace, method):
        across = depends_on_batches(expr)
        if across is None:
            continue
        answered += 1
        taken = expressions.is_elementwise(expr, FRAME.schema)
        assert not (across and taken), f"{expr} depends on the cut, but is taken"
        assert across or taken or (namespace, method) in STRICT, (
            f"{expr} looks at its own row alone, but is refused"
        )
        if answered == 1:
            assert_operators_agree(expr, taken=taken)
        if answered == 12:
            break


def assert_operators_agree(expr: pl.Expr, *, taken: bool) -> None:
    rows = mr.read(ROWS)
    makes: list[Callable[[], object]] = [
        lambda: rows.with_columns(x=expr),
        lambda: rows.select("n", x=expr),
        lambda: rows.filter(expr.is_not_null()),
    ]
    for make in makes:
        if taken:
            make()
        else:
            with pytest.raises(DefinitionError, match="looks across rows"):
                make()


@pytest.mark.parametrize("constant", [pl.lit(1), pl.lit("b"), pl.lit(1) + 1])
def test_an_aggregate_of_lists_that_is_a_constant_is_refused(constant: pl.Expr) -> None:
    """Polars computes a value for each element."""
    for lists in (pl.col("numbers").list, pl.concat_arr("n", "n").arr):
        assert not expressions.is_elementwise(lists.agg(constant), FRAME.schema)
        assert not expressions.is_elementwise(
            lists.agg(pl.element().max()) + lists.agg(constant).len(), FRAME.schema
        )
        assert expressions.is_elementwise(lists.agg((pl.element() + (constant.len())).max()), FRAME.schema)
