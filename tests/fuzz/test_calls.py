"""Every public function and method, called with wrong types, wrong values and None: only errors of millrace's
own come out, of one line.

`FUZZ_CASES=20000 pytest tests/fuzz/test_calls.py` runs more; the seed is the number of the case, so that each
can be run again.
"""

import inspect
import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, evictors, patterns, state, triggers, watermarks, windows
from millrace.errors import MillraceError

CASES = int(os.environ.get("FUZZ_CASES", "600"))
HEAVY = {"run", "replay", "backfill", "from_dataframe", "to_dataframe", "sql"}
"""Functions that read files or logs, or start a runner: a test below tries their arguments."""


INTERNAL = {"check_trigger", "lag_bucket", "largest_lag", "last_update_offset", "walk"}
"""Functions of these modules that are not for users."""


@dataclass
class Ride:
    who: str
    n: int
    speed: float | None
    tags: list[str]


RIDES = mr.Topic("rides", Ride, key="who")


class Doing(mr.Processor):
    """Does nothing."""

    def process(self, row: Any, ctx: Any) -> None:
        """Nothing."""


class Odd:
    """A value whose repr fails."""

    def __repr__(self) -> str:
        """Fails."""
        raise RuntimeError("no text\nat all")


def subjects() -> dict[str, Any]:
    """Objects on which methods are called."""
    rows = mr.read(RIDES)
    windowed = rows.window(windows.fixed("10s"))
    found = mr.pattern("a", pl.col("n") > 1)
    return {
        "Stream": rows,
        "windowed": windowed,
        "panes": windowed.group_by("who").count(),
        "Keyed": windowed.group_by("who"),
        "keyed rows": rows.group_by("who"),
        "Pattern": found,
        "matches": rows.group_by("who").match(found.within("1m"), select={"n": patterns.count("a")}),
        "Trigger": triggers.after_count(3),
    }


def values(rng: random.Random) -> Any:
    """A value that is mostly a wrong argument."""
    rows = mr.read(RIDES)
    right: list[Any] = [
        "who",
        "n",
        "10s",
        3,
        pl.col("n"),
        RIDES,
        rows,
        rows.group_by("who"),
        windows.fixed("10s"),
        triggers.after_count(2),
        evictors.last(2),
    ]
    right += [
        watermarks.bounded("1s"),
        aggregates.count(),
        mr.pattern("a"),
        mr.table(RIDES),
        ["who", "n"],
        {"x": patterns.count("a")},
    ]
    wrong: list[Any] = [
        None,
        "",
        "x\ny",
        "nobody",
        b"bytes",
        -1,
        0,
        2**70,
        1.5,
        math.nan,
        math.inf,
        True,
        [],
        {},
        (),
        set(),
        object(),
        Odd(),
    ]
    wrong += [
        pl.col("nobody"),
        pl.col("n").sum(),
        pl.Series([1]),
        pl.DataFrame(),
        timedelta(days=-1),
        lambda *_: None,
        Ride,
        int,
        "1s" * 99,
    ]
    wrong += [
        [None],
        {"x": None},
        [[["who"]]],
        ("0s", "-5s"),
        "106751991167d",
        10**30,
        "💥",
        Doing,
        Doing(),
        Ellipsis,
        range(3),
    ]
    return rng.choice(right if rng.random() < 0.3 else wrong)


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """All public names and methods."""
    modules: dict[str, ModuleType] = {
        "windows": windows,
        "triggers": triggers,
        "watermarks": watermarks,
        "aggregates": aggregates,
        "evictors": evictors,
    }
    modules |= {"patterns": patterns, "state": state}
    for label, module in modules.items():
        public = getattr(module, "__all__", None) or [
            name for name in dir(module) if not name.startswith("_")
        ]
        for name in public:
            value = getattr(module, name)
            if (
                inspect.isfunction(value)
                and value.__module__.startswith(module.__name__)
                and name not in INTERNAL
            ):
                yield f"{label}.{name}", value
    for name in mr.__all__:
        value = getattr(mr, name)
        if (
            name not in HEAVY
            and callable(value)
            and not (inspect.isclass(value) and name in ("Stream", "Keyed", "Table", "Processor"))
        ):
            yield name, value
    for label, subject in subjects().items():
        for name, value in inspect.getmembers(subject, callable):
            if not name.startswith("_") and name not in HEAVY:
                yield f"{label}.{name}", value


CALLS = list(callables())


def call(case: int) -> str | None:
    """Makes one wrong call. Returns its outcome if that is not an error of millrace in one line."""
    rng = random.Random(case)
    name, fn = CALLS[case % len(CALLS)]
    parameters = [p for p in inspect.signature(fn).parameters.values() if p.name != "self"]
    args: list[Any] = []
    named: dict[str, Any] = {}
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            if one.default is one.empty or rng.random() < 0.5:
                args += [
                    values(rng) for _ in range(rng.choice([1, 1, 2]) if one.kind is one.VAR_POSITIONAL else 1)
                ]
            elif one.kind is not one.VAR_POSITIONAL:
                break
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and (one.default is one.empty or rng.random() < 0.4):
            named[one.name] = values(rng)
        if one.kind is one.VAR_KEYWORD and rng.random() < 0.7:
            named[rng.choice(["x", "n", "who"])] = values(rng)
    try:
        fn(*args, **named)
    except MillraceError as error:
        return f"case {case}, {name}: {error!r} has several lines" if "\n" in str(error) else None
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        return f"case {case}, {name}: {type(error).__name__}: {str(error)[:150]!r}"
    return None


def test_a_wrong_call_ends_in_an_error_of_one_line(took: Callable[[int], None]) -> None:
    took(CASES)
    found = [message for case in range(CASES) if (message := call(case))]
    assert found == []


def test_the_fuzzer_reaches_the_public_api() -> None:
    names = {name for name, _ in CALLS}
    assert {
        "read",
        "table",
        "Topic",
        "Job",
        "Stream.write",
        "Keyed.join",
        "windows.fixed",
        "Pattern.within",
        "aggregates.sum",
        "evictors.last",
        "Stream.parallelism",
    } <= names


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mr.read("x"), "read: 'x' is not a topic; say Topic"),  # type: ignore[arg-type]
        (lambda: mr.read(RIDES, watermark="1s"), "'1s' is not a watermark; use one of watermarks"),  # type: ignore[arg-type]
        (lambda: mr.read(RIDES).write(3), "write: 3 is not a topic; say Topic"),  # type: ignore[arg-type]
        (lambda: mr.read(RIDES).write("a b"), "topic name 'a b': use up to 200 letters"),
        (
            lambda: mr.read(RIDES).group_by("who").join(mr.read(RIDES)),  # type: ignore[arg-type]
            "is not a keyed stream or a table; group it by its key",
        ),
        (
            lambda: mr.read(RIDES).join(mr.read(RIDES).group_by("who")),  # type: ignore[attr-defined]
            r"join needs rows that are grouped by a key; say .group_by\('key'\).join",
        ),
        (
            lambda: mr.read(RIDES).group_by("who").write(RIDES),  # type: ignore[attr-defined]
            "write is a method of streams, and these rows are grouped",
        ),
        (
            lambda: mr.read(RIDES).with_columns(n=pl.lit(None)).write(RIDES),
            "n is always null, and the field must have a value",
        ),
        (lambda: mr.read(RIDES).with_columns(who=pl.lit(None)).write(RIDES), "who is always null"),
        (
            lambda: mr.read(RIDES).with_columns(n=pl.col("tags")).write(RIDES),
            r"n is List\(String\), and the field is Int64",
        ),
        (
            lambda: mr.read(RIDES).with_columns(tags=pl.col("n")).write(RIDES),
            r"tags is Int64, and the field is List\(String\)",
        ),
        (lambda: mr.table("x"), "table: 'x' is not a topic"),  # type: ignore[arg-type]
        (lambda: mr.read(RIDES).group_by("who").process(3), "3 is not a processor"),  # type: ignore[arg-type]
        (lambda: mr.Topic(), "missing 1 required positional argument: 'name'"),  # type: ignore[call-arg]
        (lambda: mr.read(mr.Topic("x")), "topic 'x' has no type, and no job that was defined before writes"),
        (lambda: mr.read(RIDES).named(3), "3 is not a name"),  # type: ignore[arg-type]
    ],
)
def test_errors_of_likely_mistakes_name_value_and_remedy(make: Any, message: str) -> None:
    with pytest.raises(MillraceError, match=message):
        make()


def test_functions_that_run_jobs_refuse_wrong_arguments_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copy = mr.Job("copy", mr.read(RIDES).write(mr.Topic("copies", Ride, key="who")))
    rows = pl.DataFrame({"who": ["x"], "n": [1]})
    calls: list[Callable[[Any], Any]] = [
        lambda wrong: mr.run(wrong, until_caught_up=True),
        *(
            lambda wrong, name=name: mr.run(copy, until_caught_up=True, **{name: wrong})
            for name in ("settings", "retry", "reset", "migrate")
        ),
        lambda wrong: mr.run(copy, until_caught_up=True, restore=wrong),
        lambda wrong: mr.replay(wrong, rows),
        lambda wrong: mr.replay(copy, wrong),
        lambda wrong: mr.replay(copy, {"rides": wrong}),
        lambda wrong: mr.replay(copy, {wrong if callable(getattr(wrong, "__hash__", None)) else "x": rows}),
        lambda wrong: mr.replay(copy, {"rides": rows}, batch=wrong),
        lambda wrong: mr.backfill(wrong, version="2"),
        lambda wrong: mr.backfill(copy, version=wrong),
        lambda wrong: mr.backfill(copy, version="3", settings=wrong),
        lambda wrong: mr.from_dataframe(wrong, RIDES, time="n"),
        lambda wrong: mr.from_dataframe(rows, wrong, time="n"),  # type: ignore[arg-type]
        lambda wrong: mr.sql(wrong, rows=rows),
        lambda wrong: mr.sql("SELECT 1", rows=wrong),
    ]
    for number, call in enumerate(calls):
        for wrong in (5, b"bytes", 1.5, object(), Odd(), [None], pl.Series([1]), lambda: 1):
            with pytest.raises(MillraceError) as refused:
                call(wrong)
            assert "\n" not in str(refused.value), number


def test_events_may_be_given_by_topic() -> None:
    copy = mr.Job("copy", mr.read(RIDES).write(mr.Topic("copies", Ride, key="who")))
    row = {"who": "x", "n": 1, "speed": None, "tags": [], "event_time": 5}
    rows = pl.DataFrame([row], schema={**RIDES.schema, "event_time": pl.Int64()})
    assert mr.replay(copy, {RIDES: rows})["n"].to_list() == [1]
