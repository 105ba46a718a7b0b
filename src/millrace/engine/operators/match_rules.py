"""Operator `match_rules`: patterns that come and go while the job runs, as rows of a topic of rules.

Each rule is a pattern with partial matches of its own. A rule is ordered among the rows by its event time: it
sees the rows after it, up to the rule of the same name that replaces or withdraws it. That takes its partial
matches with it, and no others. A rule is not trusted: one that cannot be read, is one too many, or fails is a
dead letter, and not an error.

Example, rows at 1 to 6 s, rule `r` at 2 s, another `r` at 5 s:

    interval   first rule: rows at 3 s, 4 s   second rule: rows at 6 s and later
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import msgspec
import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.durations import END_OF_STREAM
from millrace.engine.exchange import Block, Body
from millrace.engine.isolation import NOT_USER_ERRORS, to_dead_letters
from millrace.engine.keyed_table import KeyedTable
from millrace.engine.operators.contract import OperatorResult, number_pairs
from millrace.engine.operators.match import bytes_by_key, whole_rows
from millrace.engine.ordered_rows import OrderedBatch, OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.errors import DefinitionError
from millrace.graph.build.rules import (
    MAX_MOVES,
    MAX_RULES,
    MOVES_PER_ROW,
    RULE_NAME,
    RULE_TEXT,
    MatchRules,
    collect_matches,
)
from millrace.log.dead_letters import DEAD_SCHEMA, replace_surrogates
from millrace.patterns.cep import encoding
from millrace.patterns.cep.matcher import Key, Matcher, MatcherResult
from millrace.patterns.cep.partial_matches import WorkBudget
from millrace.values.calls import ordinary_errors
from millrace.values.columns import (
    DUE,
    EXPIRES_AT,
    KEY_STATE,
    LINE,
    REPORTS_ERRORS,
    RULE_VERSION,
    STATE_VERSION,
)

PARTIAL_MATCHES = "courses"
"""State table: the partial matches of each rule and key."""


class RuleInterval(NamedTuple):
    """A rule over a stretch of rows in order."""

    rule: str
    version: str
    text: str
    first: int
    end: int
    watermark: int
    """How far time passes for it."""
    is_active: bool


class RuleFailure(NamedTuple):
    """A rule that could not go on, and why."""

    interval: RuleInterval
    reason: str


class RuleOutcome(NamedTuple):
    """What all rules did in a batch."""

    state: SlotState
    panes: pl.DataFrame
    rules: dict[str, list[str]]
    """Of each rule that goes on, by name: its version and its text."""
    ended: set[str]
    """The names of rules that do not."""
    letters: pl.DataFrame


@dataclass(frozen=True, eq=False)
class MatchRulesOperator:
    """Finds the matches of rules."""

    operator: Operator
    node: MatchRules
    _matchers: dict[str, Matcher | str] = field(default_factory=dict)

    @cached_property
    def rows(self) -> OrderedRows:
        """The rows and rules that wait for their turn."""
        return OrderedRows(self.operator, whole_rows(self.node))

    @cached_property
    def partial_matches(self) -> KeyedTable:
        """What is kept of a rule and a key; a new version of a rule begins with nothing."""
        keys = {key: self.node.row_schema[key] for key in self.node.keys}
        columns = {DUE: pl.Int64(), EXPIRES_AT: pl.Int64(), KEY_STATE: pl.Binary(), STATE_VERSION: pl.Int64()}
        empty = pl.Schema({RULE_VERSION: pl.String(), **keys, **columns}).to_frame()
        return KeyedTable(
            self.operator.id,
            PARTIAL_MATCHES,
            (RULE_VERSION, *self.node.keys),
            empty,
            value=KEY_STATE,
            due=DUE,
            until=EXPIRES_AT,
        )

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: refuse invalid rules and those beyond the limit, judge rows,
        follow every rule over the rows of its time.
        """
        blocks, names, excess = self._limit_rules(state, blocks)
        batch = self.rows.take(state, body, blocks, self._judge)
        outcome = self._follow_rules(batch)
        result = batch.result(outcome.state, outcome.panes)
        values = {
            **result.state.values[self.operator.id],
            "rules": outcome.rules,
            "names": sorted(names - outcome.ended),
        }
        letters = [self._invalid_rules(blocks), excess, outcome.letters]
        found = [part for part in letters if part is not None and part.height]
        values["low"] = self._output_watermark(batch, outcome)
        return replace(
            result,
            state=result.state.with_values(self.operator.id, values),
            watermark=values["low"],
            dead_letters=pl.concat(found) if found else None,
        )

    def _output_watermark(self, batch: OrderedBatch, outcome: RuleOutcome) -> int | None:
        """The low watermark less the greatest delay of a match of the rules that hold.

        It need not go back where a rule with a greater one comes: no match of it is older than the rule.
        """
        if batch.output_watermark is None or batch.is_ended:
            return batch.output_watermark
        compiled = [self._compile_rule(text) for _, text in outcome.rules.values()]
        delays = [matcher.pattern.match_delay for matcher in compiled if isinstance(matcher, Matcher)]
        held_back = batch.output_watermark - max(delays, default=0)
        return held_back if batch.old_output_watermark is None else max(batch.old_output_watermark, held_back)

    def _judge(self, rows: pl.DataFrame | None) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """As rows in order are judged; rules that cannot be read do not wait."""
        accepted, late = self.rows.judge(rows)
        if accepted is not None:
            texts = accepted[RULE_TEXT].drop_nulls().unique()
            invalid = [text for text in texts if isinstance(self._compile_rule(text), str)]
            accepted = accepted.filter(~pl.col(RULE_TEXT).is_in(invalid).fill_null(value=False))
        return accepted, late

    def _follow_rules(self, batch: OrderedBatch) -> RuleOutcome:
        """Every rule over the rows of its time."""
        rules: dict[str, list[str]] = (batch.state.values.get(self.operator.id) or {}).get("rules", {})
        rows = batch.sorted(self.node.inputs[0].schema.to_frame(), ORDER)
        intervals = self._rule_intervals(rules, rows, batch.deadline)
        matches: list[pl.DataFrame] = [self.node.schema.to_frame()]
        changed: list[pl.DataFrame] = []
        failed: dict[str, RuleFailure] = {}
        for interval in intervals:
            try:
                with ordinary_errors():
                    found, changed_rows = self._match_interval(batch, interval, rows)
                    matches.append(collect_matches(found, self.node, interval.rule))
            except NOT_USER_ERRORS:
                raise
            except Exception as error:  # noqa: BLE001 - a rule is not trusted: what it causes ends it, and not the job
                failed[interval.version] = RuleFailure(interval, _one_line(error))
                continue
            if interval.is_active:
                changed.append(changed_rows)
        active = [one for one in intervals if one.is_active and one.version not in failed]
        kept = {one.rule: [one.version, one.text] for one in active}
        self._evict_matchers({text for _, text in kept.values()})
        return RuleOutcome(
            self._write(batch, changed, [one.version for one in active]),
            number_pairs(pl.concat(matches), self.node.schema),
            kept,
            {one.rule for one in intervals} - kept.keys(),
            self._withdrawn_letters([one for one in failed.values() if one.interval.is_active]),
        )

    def _write(self, batch: OrderedBatch, changed: Sequence[pl.DataFrame], versions: list[str]) -> SlotState:
        """With the partial matches of the rules that go on."""
        state, table = batch.state, self.partial_matches
        if changed:
            is_active = pl.col(RULE_VERSION).is_in(versions)
            state = table.append(state, pl.concat(changed), since=batch.old_watermark, where=is_active)
        return table.expire(state, batch.watermark)

    def _limit_rules(
        self, state: SlotState, blocks: list[Block]
    ) -> tuple[list[Block], set[str], pl.DataFrame | None]:
        """The blocks without the rules that are one too many, the names of those there are, and letters."""
        values = state.values.get(self.operator.id) or {}
        names = {*values.get("names", []), *values.get("rules", {})}
        kept: list[Block] = []
        excess: list[pl.DataFrame] = []
        for block in blocks:
            if self.operator.input_index(block.channel) == self.node.broadcast_input:
                rules = block.frame
                fits = []
                for name, text in rules.select(RULE_NAME, RULE_TEXT).iter_rows():
                    is_valid = bool(text) and isinstance(self._compile_rule(text), Matcher)
                    fits.append(not is_valid or name in names or len(names) < MAX_RULES)
                    if is_valid and fits[-1]:
                        names.add(name)
                if not all(fits):
                    refused = rules.filter(~pl.Series(fits, dtype=pl.Boolean) & pl.col(REPORTS_ERRORS))
                    excess.append(
                        _dead_letters(
                            refused,
                            self.operator.topic_of(block.channel),
                            f"there are {MAX_RULES} rules already; withdraw some (an empty pattern), then "
                            "send it again",
                        )
                    )
                    block = block.with_frame(rules.filter(pl.Series(fits, dtype=pl.Boolean)))  # noqa: PLW2901
            kept.append(block)
        return kept, names, pl.concat(excess) if excess else None

    def _compile_rule(self, text: str) -> Matcher | str | None:
        """What finds a rule, or what is wrong with it; None: it is withdrawn."""
        if not text:
            return None
        if text not in self._matchers:
            try:
                self._matchers[text] = self.node.compile_rule(text)
            except DefinitionError as error:
                self._matchers[text] = replace_surrogates(str(error))
        return self._matchers[text]

    def _invalid_rules(self, blocks: list[Block]) -> pl.DataFrame | None:
        letters = []
        for block in blocks:
            if self.operator.input_index(block.channel) != self.node.broadcast_input:
                continue
            rules = block.frame.filter(pl.col(REPORTS_ERRORS))
            reasons = [self._compile_rule(text) for text in rules[RULE_TEXT]]
            invalid = rules.with_columns(
                pl.Series("reason", [why if isinstance(why, str) else None for why in reasons], pl.String)
            )
            invalid = invalid.filter(pl.col("reason").is_not_null())
            topic = self.operator.topic_of(block.channel)
            letters.append(_dead_letters(invalid.drop("reason"), topic, invalid["reason"]))
        dead = pl.concat(letters) if letters else None
        return None if dead is None or dead.is_empty() else dead

    def _withdrawn_letters(self, failed: Sequence[RuleFailure]) -> pl.DataFrame:
        """Letters for rules that could not go on."""
        topic = self.node.inputs[1]
        name = next(
            (
                edge.read.topic.name
                for edge in graph.edges(graph.Union((topic,), topic.schema))
                if edge.read is not None
            ),
            None,
        )
        rows = [
            (
                name,
                None,
                None,
                None,
                rule_interval.rule.encode(),
                _original_record(rule_interval),
                (
                    f"the rule {rule_interval.rule!r} was withdrawn: {reason}; matches that "
                    "it had begun are given up"
                ),
            )
            for rule_interval, reason in failed
        ]
        return pl.DataFrame(rows, schema=DEAD_SCHEMA, orient="row")

    def _evict_matchers(self, used: set[str]) -> None:
        """Drops what is known of rules that are no longer in use, where that is much."""
        if len(self._matchers) > 2 * MAX_RULES:
            for text in [text for text in self._matchers if text not in used]:
                self._matchers.pop(text, None)

    def _rule_intervals(
        self, rules: dict[str, list[str]], rows: pl.DataFrame, watermark: int
    ) -> list[RuleInterval]:
        """Which rule holds over which rows."""
        intervals: list[RuleInterval] = []
        current = {rule: (version, text, 0) for rule, (version, text) in rules.items()}
        changes = (
            rows.with_row_index(LINE).filter(pl.col(RULE_NAME).is_not_null())
            if RULE_NAME in rows.columns and rows.height
            else None
        )
        for line, rule, text, *order in (
            changes.select(LINE, RULE_NAME, RULE_TEXT, *ORDER).iter_rows() if changes is not None else ()
        ):
            if rule in current:
                version, old, first = current.pop(rule)
                intervals.append(RuleInterval(rule, version, old, first, line, order[0], is_active=False))
            if text:
                current[rule] = ("/".join(map(str, order)), text, line + 1)
        return intervals + [
            RuleInterval(rule, version, text, first, rows.height, watermark, is_active=True)
            for rule, (version, text, first) in current.items()
        ]

    def _match_interval(
        self, batch: OrderedBatch, interval: RuleInterval, rows: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The matches of a rule over its rows, and what changed of its partial matches."""
        matcher = self._compile_rule(interval.text)
        assert isinstance(matcher, Matcher)
        own_rows = rows[interval.first : interval.end]
        ready = matcher.prepare_rows(own_rows.filter(pl.col(RULE_NAME).is_null()))
        is_this_rule = pl.col(RULE_VERSION) == interval.version
        keys = ready.select(pl.lit(interval.version).alias(RULE_VERSION), *self.node.keys)
        stored = self.partial_matches.read_due(
            batch.state, keys, batch.old_watermark, interval.watermark, is_this_rule
        )
        stored_by_key = bytes_by_key(stored, self.node.keys)
        result = matcher.match_prepared(
            {
                key: encoding.decode_matches(data, matcher.states, list(matcher.schema))
                for key, (_, data) in stored_by_key.items()
            },
            ready,
            interval.watermark,
            WorkBudget(MAX_MOVES + MOVES_PER_ROW * own_rows.height),
        )
        expiries = {key: expiry for key, (expiry, _) in stored_by_key.items()}
        return result.matches, self._changed_rows(interval, matcher, result, expiries, batch.version)

    def _changed_rows(
        self,
        rule_interval: RuleInterval,
        matcher: Matcher,
        result: MatcherResult,
        expiries: dict[Key, int],
        version: int,
    ) -> pl.DataFrame:
        """What changed; a key of which nothing is left has a tombstone until what was
        kept of it would have expired.
        """
        span = matcher.pattern.span or 0
        rows = []
        for key, matches in result.changed.items():
            if matches is None:
                rows.append((rule_interval.version, *key, END_OF_STREAM, expiries[key], None, version))
            else:
                due, expiry = (
                    matcher.runner.next_deadline(matches),
                    max(run.start.time for run in matches.running) + span,
                )
                rows.append(
                    (
                        rule_interval.version,
                        *key,
                        END_OF_STREAM if due is None else due,
                        expiry,
                        encoding.encode_matches(matches),
                        version,
                    )
                )
        return pl.DataFrame(rows, schema=self.partial_matches.empty.schema, orient="row")


def _dead_letters(rules: pl.DataFrame, topic: str | None, reason: str | pl.Series) -> pl.DataFrame:
    """Rules as dead letters."""
    reasons = pl.lit(reason, pl.String) if isinstance(reason, str) else reason
    return to_dead_letters(rules, topic).with_columns(reasons.alias("reason")).select(list(DEAD_SCHEMA))


def _original_record(interval: RuleInterval) -> bytes:
    """A rule that was taken long ago; its record is not at hand any more."""
    return msgspec.json.encode({"name": interval.rule, "pattern": interval.text})


def _one_line(error: Exception) -> str:
    return replace_surrogates(" ".join(str(error).split())) or type(error).__name__
