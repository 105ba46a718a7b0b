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
from millrace.engine.exchange import Block, Body, dump
from millrace.engine.isolation import NOT_THEIRS, letters
from millrace.engine.operators.assign import PLACE
from millrace.engine.operators.emit import PAIR, Stepped
from millrace.engine.operators.ordered_windows import SequenceWindows
from millrace.engine.progress import END
from millrace.engine.state import Layout, SlotState
from millrace.errors import DefinitionError
from millrace.graph.build.rules import DECLARED, EFFORT_PER_ROW, MOST_EFFORT, MOST_RULES, RULE, Rules, listed
from millrace.log.dead import DEAD, legible
from millrace.patterns.cep import encoding
from millrace.patterns.cep.matcher import Key, Matched, Matcher
from millrace.patterns.cep.partial_matches import Effort
from millrace.values.calls import ordinary_errors

TOLD = "_told"
"""Of rows that go to every slot: whether it is this one that tells what is wrong with them."""
TABLE = "courses"
WITHDRAWN = "withdrawn"
"""Letters for rules that cannot go on, beside what is shown."""


class Reign(NamedTuple):
    """A rule over a stretch of rows in order."""

    rule: str
    version: str
    text: str
    first: int
    end: int
    until: int
    """How far time passes for it."""
    goes_on: bool


@dataclass(frozen=True, eq=False)
class RuleMatches(SequenceWindows):
    """The operator of rules."""

    _read: dict[str, Matcher | str] = field(default_factory=dict)

    @cached_property
    def node(self) -> Rules:
        """What it is to do."""
        node = self.operator.node
        assert isinstance(node, Rules)
        return node

    @cached_property
    def _kept(self) -> list[str]:
        return [
            c for c in dict.fromkeys([*self.node.inputs[0].schema, *ORDER, PLACE]) if c not in self.node.keys
        ]

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> Stepped:
        """A batch; a rule that is none is a dead letter, and the one before it stays. So is one too many, and one that cannot go on."""
        blocks, names, excess = self._bounded(state, blocks)
        stepped = super().step(state, body, blocks)
        saved = stepped.state.values[self.operator.id]
        alive = {"names": sorted(names - set(saved.get("ended", [])))}
        after = stepped.state.with_values(
            self.operator.id, {**{k: v for k, v in saved.items() if k != "ended"}, **alive}
        )
        withdrawn = stepped.sides.get(WITHDRAWN)
        found = [part for part in (self._dead(blocks), excess, withdrawn) if part is not None and part.height]
        return replace(stepped, state=after, sides={}, dead=pl.concat(found) if found else None)

    def _bounded(
        self, state: SlotState, blocks: list[Block]
    ) -> tuple[list[Block], set[str], pl.DataFrame | None]:
        """The blocks without the rules that are one too many, the names of those there are, and letters."""
        saved = state.values.get(self.operator.id) or {}
        names = {*saved.get("names", []), *saved.get("rules", {})}
        kept: list[Block] = []
        excess: list[pl.DataFrame] = []
        for block in blocks:
            if self.operator.side(block.channel) == self.node.everywhere:
                rules = block.frame
                fits = []
                for name, text in rules.select(RULE, DECLARED).iter_rows():
                    good = bool(text) and isinstance(self._rule(text), Matcher)
                    fits.append(not good or name in names or len(names) < MOST_RULES)
                    if good and fits[-1]:
                        names.add(name)
                if not all(fits):
                    bad = rules.filter(~pl.Series(fits, dtype=pl.Boolean) & pl.col(TOLD))
                    excess.append(
                        _letters(
                            bad,
                            block,
                            f"there are {MOST_RULES} rules already; withdraw some (an empty pattern), then send it again",
                        )
                    )
                    block = replace(block, data=dump(rules.filter(pl.Series(fits, dtype=pl.Boolean))))  # noqa: PLW2901
            kept.append(block)
        return kept, names, pl.concat(excess) if excess else None

    def _judged(self, rows: pl.DataFrame | None) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        taken, late = super()._judged(rows)
        if taken is not None:
            wrong = [
                text for text in taken[DECLARED].drop_nulls().unique() if isinstance(self._rule(text), str)
            ]
            taken = taken.filter(~pl.col(DECLARED).is_in(wrong).fill_null(value=False))
        if late is not None and TOLD in late.columns:
            late = late.filter(pl.col(TOLD).fill_null(value=True)).drop(TOLD)
        return taken, None if late is None or late.is_empty() else late

    def _rule(self, text: str) -> Matcher | str | None:
        """What finds a rule, or what is wrong with it; None: it is withdrawn."""
        if not text:
            return None
        if text not in self._read:
            try:
                self._read[text] = self.node.matcher(text)
            except DefinitionError as error:
                self._read[text] = legible(str(error))
        return self._read[text]

    def _dead(self, blocks: list[Block]) -> pl.DataFrame | None:
        found = []
        for block in blocks:
            if self.operator.side(block.channel) != self.node.everywhere:
                continue
            rules = block.frame.filter(pl.col(TOLD))
            reasons = [self._rule(text) for text in rules[DECLARED]]
            bad = rules.with_columns(
                pl.Series("reason", [why if isinstance(why, str) else None for why in reasons], pl.String)
            )
            bad = bad.filter(pl.col("reason").is_not_null())
            found.append(_letters(bad.drop("reason"), block, bad["reason"]))
        dead = pl.concat(found) if found else None
        return None if dead is None or dead.is_empty() else dead

    def _said(
        self, state: SlotState, free: pl.DataFrame | None, seq: int, passed: tuple[int, int], *, ended: bool
    ) -> tuple[SlotState, pl.DataFrame, Mapping[str, pl.DataFrame]]:
        """Every rule over the rows of its time."""
        id, (since, time) = self.operator.id, passed
        saved = state.values.get(id) or {}
        rules: dict[str, list[str]] = dict(saved.get("rules", {}))
        rows = self.node.inputs[0].schema.to_frame() if free is None else free.sort(ORDER)
        reigns = self._reigns(rules, rows, END if ended else time)
        shown: list[pl.DataFrame] = [self.no_shown.drop(PAIR)]
        written: list[pl.DataFrame] = []
        failed: dict[str, tuple[Reign, str]] = {}
        for reign in reigns:
            try:
                with ordinary_errors():
                    found, courses = self._reign(state, reign, rows[reign.first : reign.end], since, seq)
                    shown.append(listed(found, self.node, reign.rule))
            except NOT_THEIRS:
                raise
            except Exception as error:  # noqa: BLE001 - a rule is not trusted: what it causes ends it, and not the job
                failed[reign.version] = reign, legible(" ".join(str(error).split())) or type(error).__name__
                continue
            if reign.goes_on:
                written.append(courses)
        going = [reign for reign in reigns if reign.goes_on and reign.version not in failed]
        alive = [reign.version for reign in going]
        layout = Layout(
            pl.col("_due"),
            pl.col("_until"),
            lambda frame: self._newest(frame, alive).filter(pl.col("_until") > since),
        )
        if written:
            state = state.append(id, TABLE, pl.concat(written), layout)
        state = state.expire(id, TABLE, time)
        kept = {reign.rule: [reign.version, reign.text] for reign in going}
        gone = sorted({reign.rule for reign in reigns} - kept.keys())
        state = state.with_values(id, {**saved, "rules": kept, "ended": gone})
        self._forget({text for _, text in kept.values()})
        panes = pl.concat(shown).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(PAIR))
        return state, panes, {WITHDRAWN: self._withdrawn([one for one in failed.values() if one[0].goes_on])}

    def _withdrawn(self, failed: list[tuple[Reign, str]]) -> pl.DataFrame:
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
                reign.rule.encode(),
                _as_sent(reign),
                f"the rule {reign.rule!r} was withdrawn: {why}; matches that it had begun are given up",
            )
            for reign, why in failed
        ]
        return pl.DataFrame(rows, schema=DEAD, orient="row")

    def _forget(self, used: set[str]) -> None:
        """Drops what is known of rules that are no longer in use, where that is much."""
        if len(self._read) > 2 * MOST_RULES:
            for text in [text for text in self._read if text not in used]:
                self._read.pop(text, None)

    def _reigns(self, rules: dict[str, list[str]], rows: pl.DataFrame, time: int) -> list[Reign]:
        """Which rule holds over which rows."""
        done: list[Reign] = []
        now = {rule: (version, text, 0) for rule, (version, text) in rules.items()}
        changes = (
            rows.with_row_index("_line").filter(pl.col(RULE).is_not_null())
            if RULE in rows.columns and rows.height
            else None
        )
        for place, rule, text, *order in (
            changes.select("_line", RULE, DECLARED, *ORDER).iter_rows() if changes is not None else ()
        ):
            if rule in now:
                version, old, first = now.pop(rule)
                done.append(Reign(rule, version, old, first, place, order[0], goes_on=False))
            if text:
                now[rule] = ("/".join(map(str, order)), text, place + 1)
        return done + [
            Reign(rule, version, text, first, rows.height, time, goes_on=True)
            for rule, (version, text, first) in now.items()
        ]

    def _reign(
        self, state: SlotState, reign: Reign, rows: pl.DataFrame, since: int, seq: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The matches of a rule over its rows, and what changed of its courses."""
        matcher = self._rule(reign.text)
        assert isinstance(matcher, Matcher)
        ready = matcher.ready(rows.filter(pl.col(RULE).is_null()))
        known = self._known(state, reign, ready, since)
        effort = Effort(MOST_EFFORT + EFFORT_PER_ROW * rows.height)
        names = [*self.node.keys, "_until", "_course"]
        before: dict[Key, tuple[int, bytes]] = {
            row[:-2]: (row[-2], row[-1]) for row in known.select(names).iter_rows()
        }
        done = matcher.follow(
            {
                key: encoding.load(data, matcher.states, list(matcher.schema))
                for key, (_, data) in before.items()
            },
            ready,
            reign.until,
            effort,
        )
        return done.matches, self._written(
            reign, matcher, done, {key: until for key, (until, _) in before.items()}, seq
        )

    @cached_property
    def _nothing(self) -> pl.DataFrame:
        keys = {key: self.node.rows[key] for key in self.node.keys}
        numbers = {"_due": pl.Int64(), "_until": pl.Int64(), "_course": pl.Binary(), "_seq": pl.Int64()}
        return pl.Schema({"_version": pl.String(), **keys, **numbers}).to_frame()

    def _known(self, state: SlotState, reign: Reign, rows: pl.DataFrame, since: int) -> pl.DataFrame:
        """The courses of a rule for the keys that rows came for, or that time moves."""
        keys, mine = list(self.node.keys), pl.col("_version") == reign.version
        chunks = [
            chunk.frame.filter(mine)
            for chunk in state.table(self.operator.id, TABLE).chunks
            if chunk.high > since
        ]
        moved = [chunk.filter(pl.col("_due") <= reign.until).select(keys) for chunk in chunks]
        wanted = pl.concat([rows.select(keys), *moved]).unique()
        found = [chunk.join(wanted, on=keys, how="semi", nulls_equal=True) for chunk in chunks]
        newest = self._newest(pl.concat([self._nothing, *found]), [reign.version])
        return newest.filter(pl.col("_course").is_not_null() & (pl.col("_until") > since))

    def _newest(self, frame: pl.DataFrame, alive: list[str]) -> pl.DataFrame:
        own = frame.filter(pl.col("_version").is_in(alive)).sort("_seq")
        return own.unique(["_version", *self.node.keys], keep="last", maintain_order=True)

    def _written(
        self, reign: Reign, matcher: Matcher, done: Matched, untils: dict[Key, int], seq: int
    ) -> pl.DataFrame:
        """What changed; a key of which nothing is left says so until what was kept of it would have ended anyway."""
        span = matcher.pattern.span or 0
        rows = []
        for key, course in done.courses.items():
            if course is None:
                rows.append((reign.version, *key, END, untils[key], None, seq))
            else:
                due, until = matcher.rules.due(course), max(run.start.time for run in course.runs) + span
                rows.append(
                    (reign.version, *key, END if due is None else due, until, encoding.dump(course), seq)
                )
        return pl.DataFrame(rows, schema=self._nothing.schema, orient="row")


def _letters(rules: pl.DataFrame, block: Block, reason: str | pl.Series) -> pl.DataFrame:
    """Rules as dead letters."""
    said = pl.lit(reason, pl.String) if isinstance(reason, str) else reason
    return (
        letters(rules, block.channel.partition("/")[2]).with_columns(said.alias("reason")).select(list(DEAD))
    )


def _as_sent(reign: Reign) -> bytes:
    """A rule that was taken long ago; its record is not at hand any more."""
    return msgspec.json.encode({"name": reign.rule, "pattern": reign.text})
