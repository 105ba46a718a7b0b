"""The node of a regular join: all rows of both sides with the same key, without windows, as a changelog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, get_args

from millrace import durations, graph, panes
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.graph.build.aggregate import check_history
from millrace.graph.build.join import (
    JoinSide,
    JoinType,
    RowJoin,
    check_join_type,
    result_names,
    result_schema,
    side_columns,
    union_sides,
)
from millrace.graph.build.stateless import drop_constant_key, group_all_rows
from millrace.values.columns import ALL_ROWS

ColumnNames: TypeAlias = tuple[dict[str, str], dict[str, str]]


@dataclass(frozen=True, eq=False)
class RegularJoin(RowJoin):
    """Rows and changelogs of two sides with the same key, joined as SQL joins tables."""

    ttl: int | None
    """Rows that are so far apart in event time, or farther, are not partners; null: all are."""
    correction_time: int
    """How far behind the watermark the oldest result is that may still change."""

    kind = "regular_join"
    takes_changelog = True
    takes_both = True

    def settings(self) -> graph.Identity:
        """Also how far rows may be apart."""
        return {**super().settings(), "ttl": self.ttl}

    @property
    def is_append_only(self) -> bool:
        """A row without a partner is taken back when one comes, and a pair when one of its rows is."""
        return False

    @property
    def is_bounded(self) -> bool:
        """With a ttl, what is older than that and its partners holds."""
        return self.ttl is not None

    @property
    def lateness(self) -> int:
        """How long after its time a result may be taken back."""
        return self.correction_time

    @property
    def retention(self) -> int:
        """How far behind the watermark rows are kept: of a result that may change all partners count."""
        return self.correction_time + (self.ttl or 0)

    @property
    def gives_single_rows(self) -> bool:
        """Pairs, and rows without a partner."""
        return True

    @property
    def accumulation(self) -> panes.Accumulation:
        """Single rows are added and taken back."""
        return "retracting"

    def _answers(self) -> Iterator[tuple[str, str]]:
        yield from tuple(super()._answers())[:-1]
        if self.ttl is None:
            yield "lateness", "no row is refused, and all rows of both sides are kept for ever: no ttl"
            return
        ttl, kept = durations.format_millis(self.ttl), durations.format_millis(self.retention)
        yield "lateness", f"a row is refused {ttl} behind the watermark; rows are kept for {kept}"

    @property
    def _where(self) -> str:
        partners = "" if self.ttl is None else f", less than {durations.format_millis(self.ttl)} apart"
        return f"{self.how} join{partners}: {'; '.join(map(', '.join, self.columns))}"

    @property
    def _when(self) -> str:
        return "at once, and taken back when it no longer holds"


def is_regular(left: JoinSide, ttl: Duration | None) -> bool:
    """Whether a join of two streams, without `within=`, is a regular one."""
    return ttl is not None or left.windowing is None or left.windowing.is_unwindowed


def build_regular_join(
    left: JoinSide, right: JoinSide, how: JoinType, suffix: str, ttl: Duration | None
) -> RegularJoin:
    """All pairs of rows with the same key, as they come and go; with `how` those without a partner, or of the
    left those that have one (`semi`) or none (`anti`).
    """
    check_join_type(how, get_args(JoinType))
    ttl_ms = None if ttl is None else durations.parse_positive(ttl, name="ttl")
    node, names = union_sides(left, right), _names(left, right, how, suffix)
    for side in (left, right):
        _check_side(side, ttl_ms)
    return RegularJoin(
        (node,),
        result_schema(node, left.keys, names),
        left.keys,
        how,
        names,
        tuple(side_columns(names)),
        tuple(tuple(side.columns) for side in (left, right)),
        ttl_ms,
        _correction_time(node, how, ttl_ms),
    )


def build_scalar_join(left: graph.Node, right: graph.Node, suffix: str) -> graph.Node:
    """Each row of the left beside the one row of the right."""
    _check_scalar(right)
    sides = [JoinSide(group_all_rows(node), (ALL_ROWS,), None) for node in (left, right)]
    return drop_constant_key(build_regular_join(sides[0], sides[1], "left", suffix, None))


def _check_scalar(node: graph.Node) -> None:
    """Refuses a side that may have several rows."""
    match [edge.origin for edge in graph.edges(graph.Union((node,), node.schema))]:
        case [graph.Aggregation(keys=keys, windowing=windowing)] if (
            keys == (ALL_ROWS,) and windowing.is_unwindowed
        ):
            return
    raise DefinitionError(
        "join_scalar() takes a stream of one value, and this one may have several rows; aggregate it without "
        "group_by() and window(), such as payments.count(), or join by a key"
    )


def _names(left: JoinSide, right: JoinSide, how: JoinType, suffix: str) -> ColumnNames:
    """What the columns of each side are called in the result; `semi` and `anti` show the left row alone."""
    if how in ("semi", "anti"):
        return {column: column for column in left.columns}, {}
    return result_names(left, right, suffix)


def _correction_time(node: graph.Node, how: JoinType, ttl: int | None) -> int:
    """How far behind the watermark results may change. Rows may come that are `ttl` behind, and changelogs
    may take back what is behind by their lateness. A pair lies at the later of its rows; a row that is shown
    for what partners it has may lie `ttl` before the one that came.
    """
    if ttl is None:
        return 0
    changelogs = [edge.origin for edge in graph.edges(node) if not edge.is_append_only]
    oldest = max([ttl, *map(graph.correction_time, changelogs)])
    return oldest if how == "inner" else oldest + ttl


def _check_side(side: JoinSide, ttl: int | None) -> None:
    """Refuses a changelog of which a row that is taken back could not be found again."""
    check_history(side.node, {})
    for edge in graph.edges(graph.Union((side.node,), side.node.schema)):
        if edge.is_append_only:
            continue
        assert isinstance(edge.origin, graph.Operation)
        if ttl is not None and not edge.origin.is_bounded:
            raise DefinitionError(
                f"{side.text}.join(ttl=...): the results of {edge.origin.describe().title} hold for all "
                "time, so none of them ever is too old to be a partner; leave out ttl=, or say .window(...) "
                "or ttl= before"
            )
        if isinstance(edge.origin, graph.Aggregation):
            _check_windowing(side, edge.origin.windowing, ttl)


def _check_windowing(side: JoinSide, windowing: graph.Windowing, ttl: int | None) -> None:
    if windowing.accumulation == "discarding":
        raise DefinitionError(
            f"{side.text}.join() of panes with accumulation='discarding': each holds a part, and none of "
            "them all; use accumulation='accumulating'"
        )
    if windowing.time != "end":
        raise DefinitionError(
            f"{side.text}.join() of panes at time={windowing.time!r}: that time changes when they are "
            "refined; use time='end'"
        )
    if ttl is not None and windowing.is_ordered:
        raise DefinitionError(
            f"{side.text}.join(ttl=...) after {windowing.window}: its windows are shown when a later row "
            "comes, whenever that is; leave out ttl=, or use counted() or punctuated() in event time"
        )
