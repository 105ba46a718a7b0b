"""Which operator runs a node. One line for each kind; a test checks that no kind is missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from millrace import graph
from millrace.engine.operators.chained import ChainedOperator
from millrace.engine.operators.contract import StageOperator
from millrace.engine.operators.deduplicate import DeduplicateOperator
from millrace.engine.operators.final import FinalOperator
from millrace.engine.operators.interval_join import IntervalJoinOperator
from millrace.engine.operators.match import MatchOperator, make_matcher
from millrace.engine.operators.match_contiguous import ContiguousMatchOperator
from millrace.engine.operators.match_rules import MatchRulesOperator
from millrace.engine.operators.ordered_windows import OrderedWindowsOperator
from millrace.engine.operators.over import OverOperator
from millrace.engine.operators.over_corrections import CorrectedOverOperator
from millrace.engine.operators.process import ProcessOperator
from millrace.engine.operators.regular_join import RegularJoinOperator
from millrace.engine.operators.rows_beside_panes import RowsBesidePanesOperator
from millrace.engine.operators.sliced_changes import SlicedChangesOperator
from millrace.engine.operators.sliced_windows import SlicedWindowsOperator
from millrace.engine.operators.table_join import TableJoinOperator
from millrace.engine.operators.windows import WindowsOperator
from millrace.engine.plan import Operator
from millrace.graph.build.join import IntervalJoin, TableJoin
from millrace.graph.build.over import Over
from millrace.graph.build.regular_join import RegularJoin
from millrace.graph.build.rules import MatchRules
from millrace.patterns.cep.contiguous import ContiguousMatcher


def _aggregation(operator: Operator, node: graph.Aggregation) -> StageOperator:
    """By what comes in, and by whether slices suffice for the windows."""
    if operator.takes_rows_beside_panes:
        return RowsBesidePanesOperator(operator)
    if not operator.over_rows:
        return (SlicedChangesOperator if node.sets_windows else ChainedOperator)(operator)
    if node.windowing.is_ordered:
        return OrderedWindowsOperator(operator, node)
    return (
        WindowsOperator(operator) if node.windowing.sliced_window is None else SlicedWindowsOperator(operator)
    )


def _match(operator: Operator, node: graph.MatchPattern) -> StageOperator:
    """By whether the pattern is regular."""
    matcher = make_matcher(operator, node)
    kind = ContiguousMatchOperator if ContiguousMatcher.is_suitable(matcher) else MatchOperator
    return kind(operator, node, matcher)


def _match_recognize(operator: Operator, node: graph.MatchRecognize) -> StageOperator:
    from millrace.engine.operators.match_recognize import MatchRecognizeOperator  # needs the extra `sql`

    return MatchRecognizeOperator(operator, node)


def _over(operator: Operator, node: Over) -> StageOperator:
    """By whether rows are ever corrected."""
    return (OverOperator if node.is_append_only else CorrectedOverOperator)(operator, node)


OPERATORS: dict[type[graph.Operation], Callable[[Operator, Any], StageOperator]] = {
    graph.Aggregation: _aggregation,
    graph.Deduplication: DeduplicateOperator,
    graph.FinalValues: FinalOperator,
    graph.MatchPattern: _match,
    graph.MatchRecognize: _match_recognize,
    graph.Process: ProcessOperator,
    IntervalJoin: IntervalJoinOperator,
    MatchRules: MatchRulesOperator,
    Over: _over,
    RegularJoin: RegularJoinOperator,
    TableJoin: TableJoinOperator,
}


@lru_cache(maxsize=1024)
def operator_for(operator: Operator) -> StageOperator:
    """What runs an operator of the plan, made once."""
    return OPERATORS[type(operator.node)](operator, operator.node)
