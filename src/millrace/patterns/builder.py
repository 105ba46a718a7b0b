"""Patterns as users write them: steps chained to each other, each quantified by the methods after it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.patterns.cep.skip import OnMiss, SkipStrategy
from millrace.patterns.conditions import Condition
from millrace.patterns.parts import PartLink, PatternPart, check_parts
from millrace.values.calls import explain_errors, explain_errors_of


@explain_errors
@dataclass(frozen=True, eq=False)
class Pattern:
    """A sequence of events to look for. Each method returns a new pattern.
    Quantifiers apply to the last step or group.
    """

    parts: tuple[PatternPart, ...]
    span: int | None = None
    """A match is shorter than this: last < first + span."""
    skip: SkipStrategy = field(default_factory=SkipStrategy)

    def next(self, step: str | Pattern, where: Any = None) -> Pattern:
        """The very next event fits the step (strict contiguity)."""
        return self._append("next", step, where)

    def followed_by(self, step: str | Pattern, where: Any = None) -> Pattern:
        """The next event that fits; events before it are ignored (relaxed contiguity)."""
        return self._append("followed_by", step, where)

    def followed_by_any(self, step: str | Pattern, where: Any = None) -> Pattern:
        """Any later event that fits, so one beginning may have several ends
        (non-deterministic relaxed contiguity).
        """
        return self._append("followed_by_any", step, where)

    def not_next(self, step: str | Pattern, where: Any = None) -> Pattern:
        """The very next event does not fit."""
        return self._append("not_next", step, where)

    def not_followed_by(self, step: str | Pattern, where: Any = None) -> Pattern:
        """No event fits before the next step is found; at the end of a pattern: before `within` ends."""
        return self._append("not_followed_by", step, where)

    def where(self, condition: Any) -> Pattern:
        """Adds a condition that the event must fulfil as well."""
        last = self._last_step("where()")
        more = Condition.from_user(condition, f"step {last.name!r}")
        return self._replace_last(where=last.where.both(more) if last.where else more)

    def or_where(self, condition: Any) -> Pattern:
        """Adds a condition that is enough on its own."""
        last = self._last_step("or_where()")
        if last.where is None:
            raise DefinitionError(
                f"step {last.name!r} takes any event, so or_where() has no effect; give the step a "
                "condition first"
            )
        return self._replace_last(
            where=last.where.either(Condition.from_user(condition, f"step {last.name!r}"))
        )

    def times(self, least: int, most: int | None = None) -> Pattern:
        """Exactly `least` events, or from `least` to `most`."""
        low = durations.check_whole(least, name="times", minimum=0)
        high = low if most is None else durations.check_whole(most, name="times", minimum=1)
        if high < low or high == 0:
            raise DefinitionError(
                f"times({least}, {most}) allows no number of events; use times(least, most) with 0 <= least "
                "<= most and most > 0"
            )
        return self._repeat(low, high, "times()")

    def at_least(self, least: int) -> Pattern:
        """`least` events or more."""
        return self._repeat(durations.check_whole(least, name="at_least", minimum=0), None, "at_least()")

    def one_or_more(self) -> Pattern:
        """At least one event."""
        return self._repeat(1, None, "one_or_more()")

    def zero_or_more(self) -> Pattern:
        """Any number of events, or none."""
        return self._repeat(0, None, "zero_or_more()")

    def optional(self) -> Pattern:
        """The step or group may be missing."""
        self._last_positive("optional()")
        return self._replace_last(optional=True)

    def greedy(self) -> Pattern:
        """As many events as possible: an event that fits the loop is neither ignored
        nor taken by the step after it.
        """
        last = self._last_repeated("greedy()")
        if last.parts:
            raise DefinitionError("greedy() does not apply to a group; make its steps greedy")
        return self._replace_last(greedy=True)

    def consecutive(self) -> Pattern:
        """No event lies between the repetitions (strict contiguity)."""
        self._last_repeated("consecutive()")
        return self._replace_last(inner="strict")

    def allow_combinations(self) -> Pattern:
        """Between repetitions any event may be ignored, so every combination of events is a match."""
        self._last_repeated("allow_combinations()")
        return self._replace_last(inner="any")

    def until(self, condition: Any) -> Pattern:
        """An event that fulfils the condition ends the repetition and is not part of it."""
        last = self._last_repeated("until()")
        if last.until is not None:
            raise DefinitionError(f"{last} already has an until(); join the conditions with |")
        return self._replace_last(until=Condition.from_user(condition, "until()"))

    def gap(self, length: Duration) -> Pattern:
        """The event of the step comes less than this after the event before it."""
        if self.parts[-1].link == "first":
            raise DefinitionError(
                f"gap({length!r}) limits the time since the event before, and the first step has none; use "
                "it on a later step, or use within()"
            )
        return self._replace_last(gap=durations.parse_positive(length, name="gap"))

    def loop_gap(self, length: Duration) -> Pattern:
        """Each repetition comes less than this after the one before."""
        self._last_repeated("loop_gap()")
        return self._replace_last(loop_gap=durations.parse_positive(length, name="loop_gap"))

    def within(self, length: Duration) -> Pattern:
        """The last event comes less than this after the first. On a stream it bounds the state."""
        return replace(self, span=durations.parse_positive(length, name="within"))

    def skip_none(self) -> Pattern:
        """Reports all matches, also overlapping ones."""
        return replace(self, skip=SkipStrategy())

    def skip_to_next(self) -> Pattern:
        """After a match, drops the others with the same first event."""
        return replace(self, skip=SkipStrategy("to_next"))

    def skip_past_last(self) -> Pattern:
        """After a match, only matches that begin after its last event."""
        return replace(self, skip=SkipStrategy("past_last"))

    def skip_to_first(self, step: str, *, on_miss: OnMiss = "nothing") -> Pattern:
        """After a match, only matches that begin at the first event of a step or later."""
        return replace(self, skip=SkipStrategy("to_first", self._check_step(step), on_miss))

    def skip_to_last(self, step: str, *, on_miss: OnMiss = "nothing") -> Pattern:
        """After a match, only matches that begin at the last event of a step or later."""
        return replace(self, skip=SkipStrategy("to_last", self._check_step(step), on_miss))

    @property
    def steps(self) -> tuple[PatternPart, ...]:
        """All steps in order, those inside groups included."""
        return tuple(step for part in self.parts for step in part.steps())

    @property
    def is_bounded(self) -> bool:
        """Whether `within` bounds the state."""
        return self.span is not None

    @property
    def match_delay(self) -> int:
        """How long after its last event a match may still become certain: until then an earlier match may
        rule it out, or an event may be forbidden.
        """
        is_certain_at_once = self.skip.kind == "none" and not self.parts[-1].is_negative
        return 0 if is_certain_at_once else self.span or 0

    def check(self, *, stream: bool = True) -> Pattern:
        """The pattern, if it is complete; with `stream`, also if its state is bounded."""
        end = self.parts[-1]
        if end.link == "not_followed_by" and self.span is None and end.gap is None:
            raise DefinitionError(
                f"the pattern ends with {end}, which is never certain without a bound; add one, such as "
                ".within('30s')"
            )
        if stream and not self.is_bounded:
            raise DefinitionError(
                f"the pattern {self} has no bound, so on a stream partial matches would be kept for ever; "
                "add one, such as .within('1m')"
            )
        return self

    def __str__(self) -> str:
        """As text: `cruising next braking+ strict next stopped within 10s, skip past_last`."""
        span = "" if self.span is None else f" within {durations.format_millis(self.span)}"
        skip = "" if self.skip.kind == "none" else f", skip {self.skip}"
        return f"{' '.join(map(str, self.parts))}{span}{skip}"

    def _append(self, link: PartLink, step: str | Pattern, where: Any) -> Pattern:
        parts = (*self.parts, _make_part(link, step, where))
        check_parts(parts)
        return replace(self, parts=parts)

    def _replace_last(self, **changes: Any) -> Pattern:
        parts = (*self.parts[:-1], replace(self.parts[-1], **changes))
        check_parts(parts)
        return replace(self, parts=parts)

    def _repeat(self, least: int, most: int | None, word: str) -> Pattern:
        last = self._last_positive(word)
        if last.is_repeated:
            raise DefinitionError(f"{word}: {last} already has a number of repetitions; give it once")
        return self._replace_last(least=least or 1, most=most, optional=last.optional or least == 0)

    def _last_positive(self, word: str) -> PatternPart:
        if self.parts[-1].is_negative:
            raise DefinitionError(
                f"{word} cannot follow {self.parts[-1]}: a forbidden event cannot be counted"
            )
        return self.parts[-1]

    def _last_repeated(self, word: str) -> PatternPart:
        if not self.parts[-1].is_repeated:
            raise DefinitionError(
                f"{word} applies to repetitions, and {self.parts[-1]} has none; call one_or_more() or "
                "times() before it"
            )
        return self.parts[-1]

    def _last_step(self, word: str) -> PatternPart:
        if self.parts[-1].parts:
            raise DefinitionError(f"{word} does not apply to a group; give its steps conditions")
        return self.parts[-1]

    def _check_step(self, name: str) -> str:
        names = [step.name for step in self.steps]
        if name not in names:
            raise DefinitionError(
                f"skip to {name!r}: there is no such step; the steps are {', '.join(names)}"
            )
        return name


def pattern(step: str | Pattern, where: Any = None) -> Pattern:
    """A pattern that begins with a step (its name,
    and the condition of its event) or with a group (another pattern).
    """
    parts = (_make_part("first", step, where),)
    check_parts(parts)
    return Pattern(parts)


def _make_part(link: PartLink, step: str | Pattern, where: Any) -> PatternPart:
    if isinstance(step, Pattern):
        if link in ("not_next", "not_followed_by") or where is not None:
            raise DefinitionError(
                f"{link}({step}): a group has no condition and cannot be negated; give its steps conditions"
            )
        if step.span is not None or step.skip.kind != "none":
            raise DefinitionError(
                f"{link}({step}): within and skip apply to the whole pattern, not to a group"
            )
        return PatternPart(link, parts=step.parts)
    if not step or any(c in step for c in "()."):
        raise DefinitionError(f"{step!r} is not the name of a step; use a text without brackets and dots")
    return PatternPart(link, step, None if where is None else Condition.from_user(where, f"step {step!r}"))


explain_errors_of(globals(), "pattern")
