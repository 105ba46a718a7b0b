"""Rules over rows: each is a pattern with matches of its own. A rule that is replaced or withdrawn takes its matches with it, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import msgspec
import polars as pl

from millrace import graph
from millrace.aggregates import ORDER
from millrace.engine.exchange import Block, Body
from millrace.engine.isolation import NOT_USER_ERRORS, to_dead_letters
from millrace.engine.operators.assign import WINDOW_INPUT
from millrace.engine.operators.emit import PAIR, OperatorResult
from millrace.engine.operators.ordered_windows import OrderedWindowsOperator
from millrace.engine.progress import END_OF_STREAM
from millrace.engine.state import Layout, SlotState
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

REPORTS_ERRORS = "_told"
"""Of rows that go to every slot: whether it is this one that tells what is wrong with them."""
PARTIAL_MATCHES_TABLE = "courses"
WITHDRAWN = "withdrawn"
"""Letters for rules that cannot go on, beside what is shown."""


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


@dataclass(frozen=True, eq=False)
class MatchRulesOperator(OrderedWindowsOperator):
    """The operator of rules."""

    _matchers: dict[str, Matcher | str] = field(default_factory=dict)

    @cached_property
    def node(self) -> MatchRules:
        """What it is to do."""
        node = self.operator.node
        assert isinstance(node, MatchRules)
        return node

    @cached_property
    def _kept_columns(self) -> list[str]:
        return [
            c
            for c in dict.fromkeys([*self.node.inputs[0].schema, *ORDER, WINDOW_INPUT])
            if c not in self.node.keys
        ]

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch; a rule that is none is a dead letter, and the one before it stays. So is one too many, and one that cannot go on."""
        blocks, names, excess = self._limit_rules(state, blocks)
        result = super().step(state, body, blocks)
        values = result.state.values[self.operator.id]
        names_value = {"names": sorted(names - set(values.get("ended", [])))}
        new_state = result.state.with_values(
            self.operator.id, {**{k: v for k, v in values.items() if k != "ended"}, **names_value}
        )
        withdrawn = result.side_outputs.get(WITHDRAWN)
        letters = [
            part
            for part in (self._invalid_rules(blocks), excess, withdrawn)
            if part is not None and part.height
        ]
        return replace(
            result, state=new_state, side_outputs={}, dead_letters=pl.concat(letters) if letters else None
        )

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
                            block,
                            f"there are {MAX_RULES} rules already; withdraw some (an empty pattern), then send it again",
                        )
                    )
                    block = block.with_frame(rules.filter(pl.Series(fits, dtype=pl.Boolean)))  # noqa: PLW2901
            kept.append(block)
        return kept, names, pl.concat(excess) if excess else None

    def _split_late(self, rows: pl.DataFrame | None) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        accepted, late = super()._split_late(rows)
        if accepted is not None:
            invalid = [
                text
                for text in accepted[RULE_TEXT].drop_nulls().unique()
                if isinstance(self._compile_rule(text), str)
            ]
            accepted = accepted.filter(~pl.col(RULE_TEXT).is_in(invalid).fill_null(value=False))
        if late is not None and REPORTS_ERRORS in late.columns:
            late = late.filter(pl.col(REPORTS_ERRORS).fill_null(value=True)).drop(REPORTS_ERRORS)
        return accepted, None if late is None or late.is_empty() else late

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
            letters.append(_dead_letters(invalid.drop("reason"), block, invalid["reason"]))
        dead = pl.concat(letters) if letters else None
        return None if dead is None or dead.is_empty() else dead

    def _process_ordered(
        self,
        state: SlotState,
        released: pl.DataFrame | None,
        version: int,
        interval: tuple[int, int],
        *,
        ended: bool,
    ) -> tuple[SlotState, pl.DataFrame, Mapping[str, pl.DataFrame]]:
        """Every rule over the rows of its time."""
        operator_id, (old_watermark, watermark) = self.operator.id, interval
        values = state.values.get(operator_id) or {}
        rules: dict[str, list[str]] = dict(values.get("rules", {}))
        rows = self.node.inputs[0].schema.to_frame() if released is None else released.sort(ORDER)
        rule_intervals = self._rule_intervals(rules, rows, END_OF_STREAM if ended else watermark)
        matches: list[pl.DataFrame] = [self.empty_panes.drop(PAIR)]
        changed: list[pl.DataFrame] = []
        failed: dict[str, tuple[RuleInterval, str]] = {}
        for rule_interval in rule_intervals:
            try:
                with ordinary_errors():
                    rule_matches, changed_rows = self._match_interval(
                        state,
                        rule_interval,
                        rows[rule_interval.first : rule_interval.end],
                        old_watermark,
                        version,
                    )
                    matches.append(collect_matches(rule_matches, self.node, rule_interval.rule))
            except NOT_USER_ERRORS:
                raise
            except Exception as error:  # noqa: BLE001 - a rule is not trusted: what it causes ends it, and not the job
                failed[rule_interval.version] = (
                    rule_interval,
                    replace_surrogates(" ".join(str(error).split())) or type(error).__name__,
                )
                continue
            if rule_interval.is_active:
                changed.append(changed_rows)
        active = [
            rule_interval
            for rule_interval in rule_intervals
            if rule_interval.is_active and rule_interval.version not in failed
        ]
        versions = [rule_interval.version for rule_interval in active]
        layout = Layout(
            pl.col("_due"),
            pl.col("_until"),
            lambda frame: self._newest(frame, versions).filter(pl.col("_until") > old_watermark),
        )
        if changed:
            state = state.append(operator_id, PARTIAL_MATCHES_TABLE, pl.concat(changed), layout)
        state = state.expire(operator_id, PARTIAL_MATCHES_TABLE, watermark)
        kept = {rule_interval.rule: [rule_interval.version, rule_interval.text] for rule_interval in active}
        ended_rules = sorted({rule_interval.rule for rule_interval in rule_intervals} - kept.keys())
        state = state.with_values(operator_id, {**values, "rules": kept, "ended": ended_rules})
        self._evict_matchers({text for _, text in kept.values()})
        panes = pl.concat(matches).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR))
        return (
            state,
            panes,
            {
                WITHDRAWN: self._withdrawn_letters(
                    [failure for failure in failed.values() if failure[0].is_active]
                )
            },
        )

    def _withdrawn_letters(self, failed: list[tuple[RuleInterval, str]]) -> pl.DataFrame:
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
                f"the rule {rule_interval.rule!r} was withdrawn: {reason}; matches that it had begun are given up",
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
            rows.with_row_index("_line").filter(pl.col(RULE_NAME).is_not_null())
            if RULE_NAME in rows.columns and rows.height
            else None
        )
        for line, rule, text, *order in (
            changes.select("_line", RULE_NAME, RULE_TEXT, *ORDER).iter_rows() if changes is not None else ()
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
        self,
        state: SlotState,
        rule_interval: RuleInterval,
        rows: pl.DataFrame,
        old_watermark: int,
        version: int,
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The matches of a rule over its rows, and what changed of its courses."""
        matcher = self._compile_rule(rule_interval.text)
        assert isinstance(matcher, Matcher)
        ready = matcher.prepare_rows(rows.filter(pl.col(RULE_NAME).is_null()))
        stored = self._read_stored(state, rule_interval, ready, old_watermark)
        effort = WorkBudget(MAX_MOVES + MOVES_PER_ROW * rows.height)
        names = [*self.node.keys, "_until", "_course"]
        stored_by_key: dict[Key, tuple[int, bytes]] = {
            row[:-2]: (row[-2], row[-1]) for row in stored.select(names).iter_rows()
        }
        result = matcher.match_prepared(
            {
                key: encoding.decode_matches(data, matcher.states, list(matcher.schema))
                for key, (_, data) in stored_by_key.items()
            },
            ready,
            rule_interval.watermark,
            effort,
        )
        return result.matches, self._changed_rows(
            rule_interval,
            matcher,
            result,
            {key: expiry for key, (expiry, _) in stored_by_key.items()},
            version,
        )

    @cached_property
    def _empty_rows(self) -> pl.DataFrame:
        keys = {key: self.node.row_schema[key] for key in self.node.keys}
        numbers = {"_due": pl.Int64(), "_until": pl.Int64(), "_course": pl.Binary(), "_seq": pl.Int64()}
        return pl.Schema({"_version": pl.String(), **keys, **numbers}).to_frame()

    def _read_stored(
        self, state: SlotState, rule_interval: RuleInterval, rows: pl.DataFrame, old_watermark: int
    ) -> pl.DataFrame:
        """The courses of a rule for the keys that rows came for, or that time moves."""
        keys, is_this_rule = list(self.node.keys), pl.col("_version") == rule_interval.version
        chunks = [
            chunk.frame.filter(is_this_rule)
            for chunk in state.table(self.operator.id, PARTIAL_MATCHES_TABLE).chunks
            if chunk.max_end > old_watermark
        ]
        due_keys = [chunk.filter(pl.col("_due") <= rule_interval.watermark).select(keys) for chunk in chunks]
        selected_keys = pl.concat([rows.select(keys), *due_keys]).unique()
        found = [chunk.join(selected_keys, on=keys, how="semi", nulls_equal=True) for chunk in chunks]
        newest = self._newest(pl.concat([self._empty_rows, *found]), [rule_interval.version])
        return newest.filter(pl.col("_course").is_not_null() & (pl.col("_until") > old_watermark))

    def _newest(self, frame: pl.DataFrame, versions: list[str]) -> pl.DataFrame:
        rows = frame.filter(pl.col("_version").is_in(versions)).sort("_seq")
        return rows.unique(["_version", *self.node.keys], keep="last", maintain_order=True)

    def _changed_rows(
        self,
        rule_interval: RuleInterval,
        matcher: Matcher,
        result: MatcherResult,
        expiries: dict[Key, int],
        version: int,
    ) -> pl.DataFrame:
        """What changed; a key of which nothing is left says so until what was kept of it would have ended anyway."""
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
        return pl.DataFrame(rows, schema=self._empty_rows.schema, orient="row")


def _dead_letters(rules: pl.DataFrame, block: Block, reason: str | pl.Series) -> pl.DataFrame:
    """Rules as dead letters."""
    reasons = pl.lit(reason, pl.String) if isinstance(reason, str) else reason
    return (
        to_dead_letters(rules, block.channel.partition("/")[2])
        .with_columns(reasons.alias("reason"))
        .select(list(DEAD_SCHEMA))
    )


def _original_record(interval: RuleInterval) -> bytes:
    """A rule that was taken long ago; its record is not at hand any more."""
    return msgspec.json.encode({"name": interval.rule, "pattern": interval.text})
