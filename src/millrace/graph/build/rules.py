"""Rules: patterns that come from a topic while a job runs, are replaced and withdrawn, each without touching
the others.

A rule is ordered among the rows by its event time, like a row: it sees those after it, up to the rule of the
same name that follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import yaml

from millrace import graph, panes
from millrace.errors import DefinitionError
from millrace.graph.build.rows_only import require_rows
from millrace.patterns import declared
from millrace.patterns.cep.matcher import Matcher, check_types
from millrace.topics import SYSTEM_COLUMNS
from millrace.values.columns import MATCH_NUMBER, STEP, TIMED_OUT_AT

RULE_NAME, RULE_TEXT = "rule", "declared"
"""Columns that rows and rules have in common: the name of a rule and what it says. Null: it is a row."""
MATCH_STEPS, MATCH_TIMES = "steps", "times"
"""Of a match: which steps took its events, and when those were, in order."""
RULE_KEYS = ("pattern", "within", "skip")
MAX_RULE_LENGTH, MAX_RULE_DEPTH, MAX_PARTIAL_MATCHES, MAX_RULES = 10_000, 30, 10_000, 500
"""How long a rule may be, how deep its lists and maps, how many partial matches it may have for one key, and
how many rules there may be.
"""
MAX_MOVES, MOVES_PER_ROW = 300_000, 100
"""How often a rule may move a partial match in a batch: so often, and for each row so often besides."""


class _RuleLoader(yaml.SafeLoader):
    """Reads documents of limited depth without aliases,
    with which a short text can stand for a very large one.
    """

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(
                "aliases (*name) are not possible in a rule; write the value where it is used"
            )
        self.depth += 1
        if self.depth > MAX_RULE_DEPTH:
            raise yaml.YAMLError(f"lists and maps are more than {MAX_RULE_DEPTH} deep")
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


@dataclass(frozen=True, eq=False)
class MatchRules(graph.Operation):
    """Sequences of events per key, by rules that come in beside the rows."""

    show: tuple[str, ...]
    row_schema: pl.Schema
    """The columns of the rows, which rules may ask for."""

    kind = "match_rules"
    verb = "match"

    def settings(self) -> graph.Identity:
        """The columns shown of a match. Rules come and go in the state itself."""
        return {"shown": [MATCH_STEPS, MATCH_TIMES, *self.show]}

    def _answers(self) -> Iterator[tuple[str, str]]:
        yield "what", f"{', '.join([MATCH_STEPS, MATCH_TIMES, *self.show])} {self.by}"
        yield "where", "sequences of events that the rules describe, each from its own event time on"
        yield "when", graph.IN_ORDER
        yield "lateness", "a row or a rule behind the watermark is refused"

    @property
    def broadcast_input(self) -> int | None:
        """Rules concern all keys."""
        return 1

    def compile_rule(self, text: str) -> Matcher:
        """What finds the matches of a rule; the error says what is wrong with it.
        A rule is not trusted: whatever it causes is its error.
        """
        try:
            return self._compile_rule(text)
        except (DefinitionError, KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # polars' panics are not exceptions
            raise DefinitionError(
                f"the rule {_shorten(text)} is not understood: {type(error).__name__}: "
                f"{_shorten(str(error))}; write it as the reference says"
            ) from error

    def _compile_rule(self, text: str) -> Matcher:
        if len(text) > MAX_RULE_LENGTH:
            raise DefinitionError(
                f"the rule has {len(text):,} characters, and at most {MAX_RULE_LENGTH:,} are read; divide "
                "it into several rules"
            )
        try:
            fields = yaml.load(text, _RuleLoader)  # noqa: S506 - a safe loader without aliases
        except yaml.YAMLError as error:
            raise DefinitionError(f"the rule cannot be read: {' '.join(str(error).split())}") from error
        if not isinstance(fields, dict) or "pattern" not in fields or not set(fields) <= set(RULE_KEYS):
            raise DefinitionError(
                f"the rule {_shorten(text)} is not a map of {', '.join(RULE_KEYS)}; write "
                "pattern: [..], within: N"
            )
        pattern = declared.read_pattern(
            fields["pattern"], within=fields.get("within"), skip=fields.get("skip")
        ).check()
        for step in pattern.steps:
            step.name.encode()  # as results show it
        return Matcher(
            pattern, self.row_schema, self.keys, max_partial_matches=MAX_PARTIAL_MATCHES, needs_timeouts=False
        )


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


def build_match_rules(
    source: graph.Node, keys: tuple[str, ...], rules: graph.Node, show: Sequence[str]
) -> MatchRules:
    """The node of rules over rows."""
    for node, contents in ((source, "rows"), (rules, "rules")):
        require_rows(node, "match_rules()", takes=f"{contents} in order")
    for column in ("name", "pattern"):
        if rules.schema.get(column) != pl.String():
            raise DefinitionError(
                f"match_rules(): rules need a text {column!r}, as patterns.Rule has; there are "
                f"{', '.join(rules.schema)}"
            )
    for column in (RULE_NAME, RULE_TEXT, MATCH_STEPS, MATCH_TIMES):
        if column in source.schema:
            raise DefinitionError(
                f"match_rules(): rows have a column {column!r}, a name that is needed "
                "for the rules; rename it"
            )
    for column in show:
        if column not in source.schema or column in keys or column in SYSTEM_COLUMNS:
            raise DefinitionError(
                f"show={column!r}: there is no such column besides the key and the times; there are "
                f"{', '.join(source.schema)}"
            )
    check_types(source.schema)
    inputs = (_mark_rows(source), _mark_rules(rules, source.schema))
    lists = {column: pl.List(source.schema[column]) for column in show}
    shown = {
        RULE_NAME: pl.String(),
        MATCH_STEPS: pl.List(pl.String()),
        MATCH_TIMES: pl.List(pl.Int64()),
        **lists,
        "event_time": pl.Int64(),
    }
    schema = pl.Schema({**{key: source.schema[key] for key in keys}, **shown, **panes.COLUMNS})
    return MatchRules(inputs, schema, keys, tuple(show), source.schema)


def collect_matches(matches: pl.DataFrame, node: MatchRules, rule: str) -> pl.DataFrame:
    """A pane for each match of a rule: its events as lists."""
    time = pl.col("event_time")
    results = matches.group_by(MATCH_NUMBER, maintain_order=True).agg(
        *(pl.col(key).first() for key in node.keys),
        pl.col(STEP).alias(MATCH_STEPS),
        time.alias(MATCH_TIMES),
        *(pl.col(column) for column in node.show),
        time.first().alias("window_start"),
        pl.coalesce(pl.col(TIMED_OUT_AT).first(), time.last() + 1).alias("window_end"),
    )
    return results.with_columns(
        pl.lit(rule).alias(RULE_NAME),
        (pl.col("window_end") - 1).alias("event_time"),
        *panes.shown_once(),
    ).select(list(node.schema))


def _mark_rows(source: graph.Node) -> graph.Stateless:
    def mark(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(
            pl.lit(None, pl.String).alias(RULE_NAME), pl.lit(None, pl.String).alias(RULE_TEXT)
        )

    schema = graph.derive_schema(mark, source.schema, "match_rules()")
    return graph.Stateless((source,), schema, mark, "rows", internal_identity={"kind": "rows_beside_rules"})


def _mark_rules(rules: graph.Node, rows: pl.Schema) -> graph.Stateless:
    row_columns = {column: dtype for column, dtype in rows.items() if column not in graph.TIME_COLUMNS}

    def mark(frame: pl.DataFrame) -> pl.DataFrame:
        rule_columns = (pl.col("name").alias(RULE_NAME), pl.col("pattern").fill_null("").alias(RULE_TEXT))
        rest = [
            column
            for column in frame.columns
            if column in graph.TIME_COLUMNS or column in graph.INTERNAL_COLUMNS or column.startswith("_")
        ]
        return frame.select(
            *rest,
            *rule_columns,
            *(pl.lit(None, dtype).alias(column) for column, dtype in row_columns.items()),
        )

    schema = graph.derive_schema(mark, rules.schema, "match_rules()")
    return graph.Stateless((rules,), schema, mark, "rules", internal_identity={"kind": "rules_beside_rows"})
