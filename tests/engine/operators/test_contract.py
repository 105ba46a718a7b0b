"""What all operators give: panes that are numbered, for topics and for operators that follow."""

from dataclasses import dataclass, replace

import millrace as mr
from millrace import windows
from millrace.engine.operators.contract import divide_panes, empty_changes, empty_panes, number_pairs
from millrace.engine.plan import Operator, Plan
from millrace.values.columns import PAIR


@dataclass
class Reading:
    key: str


@dataclass
class Count:
    key: str
    count: int


def operator() -> Operator:
    rows = mr.read(mr.Topic("input.readings", Reading)).window(windows.fixed("10s"))
    job = mr.Job("counts", rows.group_by("key").count().write(mr.Topic("analytics.counts", Count)))
    [only] = Plan.of([job], slots=1).operators
    return only


def test_no_panes_have_the_columns_of_panes_and_a_number() -> None:
    node = operator().node
    assert empty_changes(node).schema == node.schema
    assert empty_panes(node).columns == [*node.schema, PAIR]


def test_panes_that_replace_nothing_are_numbered_one_by_one() -> None:
    node = operator().node
    two = empty_changes(node).clear(2)
    assert number_pairs(two, node.schema)[PAIR].to_list() == [0, 1]


def test_panes_go_only_where_something_reads_them() -> None:
    written, node = operator(), operator().node
    panes = number_pairs(empty_changes(node).clear(2), node.schema)
    shown, changes = divide_panes(written, panes)
    assert (shown.height, changes.height) == (2, 0)
    shown, changes = divide_panes(replace(written, shows=False, travels=True), panes)
    assert (shown.height, changes.height) == (0, 2)
    assert PAIR not in changes.columns
