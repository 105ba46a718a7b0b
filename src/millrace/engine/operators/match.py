"""Operator `match`: finds sequences of events. Of a key the partial matches are kept, as bytes, until the
bound of the pattern ends them.

Rows are taken in order (`ordered_rows.py`). The matcher follows every beginning (`patterns/cep/matcher.py`);
patterns that are regular have an operator that keeps rows instead (`match_contiguous.py`). Rows that only
begin a match wait until something happens to their key (`quiet_rows.py`).

Example, `a` followed by `b` within 60 s, one key:

    row          partial matches after it   output
    a at 10 s    a@10                       -
    c at 20 s    a@10                       -                      passed over: the link is relaxed
    b at 30 s    a@10                       match a@10, b@30       further matches of a@10 may follow
    watermark 70 s   none                   -                      a@10 ends: 70 - 10 is not less than 60
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.durations import END_OF_STREAM
from millrace.engine.exchange import Block, Body
from millrace.engine.keyed_table import KeyedTable
from millrace.engine.operators.contract import OperatorResult, empty_panes, number_pairs
from millrace.engine.operators.quiet_rows import QuietRows
from millrace.engine.ordered_rows import OrderedBatch, OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.patterns.cep import encoding
from millrace.patterns.cep.matcher import Key, Matcher, MatcherResult
from millrace.patterns.cep.partial_matches import PartialMatches
from millrace.patterns.cep.select import select_matches
from millrace.values.columns import DUE, EXPIRES_AT, KEY_STATE, STATE_VERSION

PARTIAL_MATCHES = "courses"
"""State table: the partial matches of each key."""


@dataclass(frozen=True)
class _Work:
    """What there is to do in a batch."""

    rows: pl.DataFrame
    """The rows to take, prepared."""
    stored: pl.DataFrame
    """The partial matches of their keys, and of those for which time has come."""
    waiting: pl.DataFrame
    """The rows that wait until something happens to their key."""
    expiries: Mapping[Key, int]
    """When what was kept of a key would have expired."""
    covered: Sequence[Key]
    """The keys whose quiet rows are taken."""


@dataclass(frozen=True, eq=False)
class MatchOperator:
    """Finds the matches of a pattern."""

    operator: Operator
    node: graph.MatchPattern
    matcher: Matcher

    @cached_property
    def rows(self) -> OrderedRows:
        """The rows that wait for their turn."""
        return OrderedRows(self.operator, whole_rows(self.node))

    @cached_property
    def partial_matches(self) -> KeyedTable:
        """What is kept of a key."""
        return bytes_table(self.operator, PARTIAL_MATCHES)

    @cached_property
    def quiet_rows(self) -> QuietRows:
        """The rows that wait until something happens to their key."""
        return QuietRows(self.operator.id, self.node.keys, self.matcher)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, release those in order, follow all beginnings,
        show the matches that are certain.
        """
        batch = self.rows.take(state, body, blocks)
        state, table, quiet = batch.state, self.partial_matches, self.quiet_rows
        work = self._collect(batch)
        if work.rows.is_empty() and work.stored.is_empty():
            result, changed = None, table.empty
        else:
            stored = {key: data for key, (_, data) in bytes_by_key(work.stored, self.node.keys).items()}
            partial_matches = {
                key: encoding.decode_matches(data, self.matcher.states, list(self.matcher.schema))
                for key, data in stored.items()
            }
            result = self.matcher.match_prepared(partial_matches, work.rows, batch.deadline)
            changed = self._changed_partial_matches(result, work, batch.version)
        state = table.append(state, changed, since=batch.old_watermark)
        versions_of = partial(table.read_versions, state)
        state = quiet.keep(state, work.waiting, batch.version, batch.old_watermark, versions_of)
        state = table.expire(quiet.expire(state, batch.watermark), batch.watermark)
        if result is None:
            return batch.result(state, empty_panes(self.node))
        return batch.result(
            state, to_panes(result.matches, self.node), timeouts(self.matcher, result.timeouts, self.node)
        )

    def _collect(self, batch: OrderedBatch) -> _Work:
        """What a batch does to partial matches: its rows, those that waited for them,
        and what is kept of their keys.
        """
        table, quiet, keys = self.partial_matches, self.quiet_rows, list(self.node.keys)
        rows, waiting = quiet.divide(batch.sorted(self._no_rows, ORDER))
        prepared = [self.matcher.prepare_rows(rows)]
        own_keys = pl.concat([prepared[0].select(keys), *quiet.keys_to_take(batch.state)])
        found = table.read_due_versions(batch.state, own_keys, batch.old_watermark, batch.deadline)
        if not waiting.is_empty() and not found.is_empty():
            due = waiting.join(found, on=keys, how="semi", nulls_equal=True, maintain_order="left")
            waiting = waiting.join(found, on=keys, how="anti", nulls_equal=True, maintain_order="left")
            prepared.append(self.matcher.prepare_rows(due))
        taken = quiet.take(batch.state, pl.concat([own_keys, found.select(keys)]), found, batch.old_watermark)
        expiries = dict[Key, int]()
        for frame in (found, taken):
            for *key, expiry in frame.select(*keys, EXPIRES_AT).iter_rows():
                expiries[tuple(key)] = max(expiry, expiries.get(tuple(key), expiry))
        covered = dict.fromkeys(taken.select(keys).iter_rows())
        if not taken.is_empty():
            prepared.insert(0, self.matcher.prepare_rows(taken))
        stored = table.without_deleted(found, batch.old_watermark)
        return _Work(pl.concat(prepared), stored, waiting, expiries, list(covered))

    @cached_property
    def _no_rows(self) -> pl.DataFrame:
        order = pl.Schema({name: pl.Int64() for name in ORDER})
        return pl.Schema({**self.matcher.schema, **order}).to_frame()

    def _changed_partial_matches(self, result: MatcherResult, work: _Work, version: int) -> pl.DataFrame:
        """What changed, and the keys whose quiet rows are covered now. A key of which nothing is left has a
        tombstone until what was kept of it would have expired.
        """
        after = {**dict.fromkeys(work.covered), **result.changed}
        rows = [
            (
                *key,
                *self._due_and_expiry(key, matches, work.expiries),
                None if matches is None else encoding.encode_matches(matches),
                version,
            )
            for key, matches in after.items()
        ]
        return pl.DataFrame(rows, schema=self.partial_matches.empty.schema, orient="row")

    def _due_and_expiry(
        self, key: Key, matches: PartialMatches | None, expiries: Mapping[Key, int]
    ) -> tuple[int, int]:
        if matches is None:
            return END_OF_STREAM, expiries[key]
        span, due = self.node.pattern.span, self.matcher.runner.next_deadline(matches)
        expiry = END_OF_STREAM if span is None else max(run.start.time for run in matches.running) + span
        return END_OF_STREAM if due is None else due, max(expiry, expiries.get(key, expiry))


def make_matcher(operator: Operator, node: graph.MatchPattern) -> Matcher:
    """What finds the matches; it looks for timeouts where something reads them."""
    needs_timeouts = graph.TIMEOUTS in operator.side_outputs
    return Matcher(node.pattern, node.inputs[0].schema, node.keys, needs_timeouts=needs_timeouts)


def whole_rows(node: graph.Operation) -> list[str]:
    """The columns besides the key, where rows are kept whole."""
    return [c for c in dict.fromkeys([*node.inputs[0].schema, *ORDER]) if c not in node.keys]


def bytes_table(operator: Operator, name: str) -> KeyedTable:
    """A table of bytes by key: `_due`, when time alone changes something, and `_until`,
    when nothing of it matters any more.
    """
    keys, schema = operator.node.keys, operator.node.inputs[0].schema
    columns = {DUE: pl.Int64(), EXPIRES_AT: pl.Int64(), KEY_STATE: pl.Binary(), STATE_VERSION: pl.Int64()}
    empty = pl.Schema({**{key: schema[key] for key in keys}, **columns}).to_frame()
    return KeyedTable(operator.id, name, keys, empty, value=KEY_STATE, due=DUE, until=EXPIRES_AT)


def bytes_by_key(stored: pl.DataFrame, keys: tuple[str, ...]) -> dict[Key, tuple[int, bytes]]:
    """Of each key, when what is kept of it expires, and the bytes."""
    return {row[:-2]: (row[-2], row[-1]) for row in stored.select(*keys, EXPIRES_AT, KEY_STATE).iter_rows()}


def to_panes(matches: pl.DataFrame, node: graph.MatchPattern) -> pl.DataFrame:
    """A pane for each match."""
    return number_pairs(select_matches(matches, node.select, node.keys), node.schema)


def timeouts(matcher: Matcher, found: pl.DataFrame, node: graph.MatchPattern) -> Mapping[str, pl.DataFrame]:
    """The side output for partial matches whose time was over, where something reads it."""
    return {graph.TIMEOUTS: to_panes(found, node)} if matcher.needs_timeouts else {}
