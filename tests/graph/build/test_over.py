"""What `over` refuses, and how it describes itself."""

from typing import Any

import pytest

import millrace as mr
from aggregate_strategies import Tally
from meter_readings import READINGS, read
from millrace import aggregates, frames, windows
from millrace.aggregates import Aggregate
from millrace.errors import DefinitionError
from millrace.graph.build.over import Over
from strategies import write

LAG = frames.lag("value")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"over\(\) needs at least one column, such as before=frames.lag"),
        ({"before": 3}, r"over\(before=3\) is not a function of rows; use one of millrace.aggregates or"),
        ({"value": LAG}, r"over\(value=...\): rows already have a column 'value'; choose another name"),
        ({"op": LAG}, r"rows already have a column 'op'"),
        ({"before": frames.lag("speed")}, r"there is no column 'speed'; there are meter, value, event_time"),
        ({"n": aggregates.sum("meter")}, r"sum\('meter'\) needs numbers"),
        ({"n": LAG, "rows": 0}, r"rows=0 must be a whole number from 1 on"),
        ({"n": LAG, "rows": (-1, 1)}, r"rows=\(-1, 1\) looks at rows after its row.*use frames.lead"),
        ({"n": LAG, "rows": (-1, -2)}, r"rows=\(-1, -2\) is empty: the first bound is after the second"),
        ({"n": LAG, "rows": (-1, None)}, r"a frame without an end would have every row wait for ever"),
        ({"n": LAG, "rows": (None, -2)}, r"has no beginning and ends before its row by more than one"),
        ({"n": LAG, "rows": ("a", 0)}, r"bounds are whole numbers of rows, such as \(-2, 0\)"),
        (
            {"n": LAG, "rows": 3, "range": "1m"},
            r"a frame is bounded by a number of rows or by time; give one",
        ),
        ({"n": LAG, "range": "0s"}, r"range='0s' must be longer than zero"),
        ({"n": LAG, "range": ("-1m", "5s")}, r"looks at rows after its row"),
        ({"n": LAG, "range": ("-1m",)}, r"range=\('-1m',\) has two bounds, such as"),
        ({"n": LAG, "lateness": "0s"}, r"lateness='0s' must be longer than zero"),
        ({"n": LAG, "ttl": 0}, r"ttl=0 must be longer than zero"),
        (
            {"n": aggregates.distinct("value")},
            r"n=distinct\('value'\)\): a frame without a beginning would keep",
        ),
        ({"n": Tally("value")}, r"has no running form; bound the frame: rows=1000 or range='1h'"),
    ],
)
def test_wrong_use_is_refused_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as error:
        read().over(**arguments)
    assert "\n" not in str(error.value)


def test_a_column_needs_a_name() -> None:
    with pytest.raises(DefinitionError, match=r"needs a name for its column; write over\(before="):
        read().over(LAG)


def test_lead_says_how_long_it_waits() -> None:
    with pytest.raises(DefinitionError, match=r"lead\('value'\) without a bound would keep .* within='10m'"):
        frames.lead("value")
    with pytest.raises(DefinitionError, match=r"lag\(n\)=0 must be a whole number from 1 on"):
        frames.lag("value", 0)
    with pytest.raises(DefinitionError, match=r"lag: 3 is not the name of a column"):
        frames.lag(3)  # type: ignore[arg-type] # a type checker knows it, too


def test_panes_that_may_be_refined_are_refused() -> None:
    counted = mr.read(READINGS).window(windows.fixed(10), lateness=5).group_by("meter").count()
    with pytest.raises(
        DefinitionError, match=r"over\(\.\.\.\) takes rows in order.* say .final\(\) before it"
    ):
        counted.group_by("meter").over(before=frames.lag("count"))
    assert "before" in counted.final().group_by("meter").over(before=frames.lag("count")).columns


def test_own_aggregates_work_in_frames_that_have_a_beginning() -> None:
    own: Aggregate = Tally("value")
    assert "n" in read().over(n=own, rows=3).columns


def test_columns_of_the_row_come_first() -> None:
    stream = read().over(before=LAG, n=aggregates.count())
    assert stream.columns[:5] == ["meter", "value", "before", "n", "event_time"]


def test_explain_says_what_where_and_when() -> None:
    stream = read().over(
        total=aggregates.sum("value"), next=frames.lead("value", within="10s"), range="1m", ttl="1d"
    )
    text = str(mr.Job("framed", write(stream, "analytics.framed")))
    assert "what      total = sum('value'), next = lead('value', n=1, within='10s') by meter" in text
    assert "where     range between 1m preceding and current row" in text
    assert "until the rows after it are known, at most 10s" in text
    assert "a key begins anew after 1d without a row" in text


def test_explain_says_what_corrects() -> None:
    text = str(mr.Job("framed", write(read().over(before=LAG, lateness="1m"), "analytics.framed")))
    assert "lateness  a row up to 1m late corrects those around it" in text
    assert "gives     a changelog" in text


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({}, "rows between unbounded preceding and current row"),
        ({"rows": 3}, "rows between 2 preceding and current row"),
        ({"rows": (-3, -1)}, "rows between 3 preceding and 1 preceding"),
        ({"range": "10m"}, "range between 10m preceding and current row"),
        ({"range": (None, "-1ms")}, "range between unbounded preceding and 1ms preceding"),
    ],
)
def test_frames_are_those_of_sql(bounds: dict[str, Any], text: str) -> None:
    node = read().over(n=aggregates.count(), **bounds).node
    assert isinstance(node, Over)
    assert str(node.frame) == text
