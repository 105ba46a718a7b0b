"""A pattern as a nondeterministic automaton (NFA). A state says what a partial match may do with the next
event.

It may take the event and move on, ignore it and stay, or proceed: do what another state does with the same
event. A step that is optional and a loop that may end proceed to the state after them. Every possibility is
followed, so one beginning may have several partial matches.

States are built from the last part to the first, because a state needs its successors. `a`, followed by one
or more `b`, followed by `c`, all with relaxed contiguity, becomes

    0  final
    2  waits for c        takes c → 0      ignores what is not c
    1  more b, or c       takes b → 1      ignores what is not b → 3      proceeds to 2
    3  more b             takes b → 1      ignores what is not b
    4  waits for b        takes b → 1      ignores what is not b
    5  start              takes a → 4

State 3 exists because a partial match that waits in 1 for another `b` must not proceed to 2 a second time:
with the events a b x c, the event x leaves one partial match in 3 and one in 2. If 1 ignored x and stayed in
1, the match a b c would be found twice at c.

Two things are handed from one part to the part after it, as the arguments of a `Continuation`:

- `forbidden`: conditions of `not_followed_by`. They end a partial match that stands at the first state of the
  next part.
- `guard`: what a greedy loop before takes. The next part neither takes nor ignores such an event, so the loop
  gets it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.errors import DefinitionError
from millrace.patterns.builder import Pattern
from millrace.patterns.cep.predicates import ALWAYS, Predicate, PredicateCompiler, negate, require_both
from millrace.patterns.cep.states import NfaState, reachable_states
from millrace.patterns.conditions import Condition
from millrace.patterns.parts import CONTIGUITY, MAX_STATES, InnerContiguity, PatternPart

ForbiddenPredicates = tuple[Predicate, ...]
Continuation = Callable[[ForbiddenPredicates, Predicate | None], NfaState]
"""Builds the state after a part, from the conditions that must not hold before it
and the guard of a greedy loop.
"""


@dataclass(frozen=True)
class PartContext:
    """What a part inherits from the groups around it: their `until`,
    and for the first part the link and the gap of the group.
    """

    untils: tuple[Predicate, ...] = ()
    contiguity: InnerContiguity | None = None
    gap: int | None = None
    also: tuple[NfaState, ...] = ()
    """States after the group: its first state may proceed to them, so the group can be skipped or left."""
    forbidden_after: ForbiddenPredicates = ()
    """What must not follow the group.
    It must not come between the repetitions of a loop at the group's end either.
    """

    @property
    def for_later_parts(self) -> PartContext:
        """The context of the parts after the first, which have links of their own."""
        return PartContext(self.untils, forbidden_after=self.forbidden_after)


@dataclass(frozen=True)
class StepPredicates:
    """The conditions of one step as predicates."""

    take: Predicate
    ignore_before: Predicate | None
    """Events ignored before the first event of the step; None: no event."""
    ignore_between: Predicate | None
    """Events ignored between two events of the step; None: no event."""
    until: Predicate | None


@dataclass
class Nfa:
    """The states of a pattern, numbered in the order in which they are built."""

    pattern: Pattern
    predicates: PredicateCompiler
    states: list[NfaState] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = [step.name for step in self.pattern.steps]
        self.final = self._add_state(final=True)
        self.start = self._build_parts(
            self.pattern.parts, 0, (), None, lambda _nots, _guard: self.final, PartContext()
        )
        self._build_settled_states()
        for state in self.states:
            reachable = list(reachable_states(state))
            state.may_end = any(other.final for other in reachable)
            state.may_settle = any(other.pending for other in reachable)
            gaps = [other.gap for other in reachable if other.take is not None or other.ignore is not None]
            state.max_wait = None if not gaps or None in gaps else max(gap for gap in gaps if gap is not None)

    def _build_settled_states(self) -> None:
        """Adds a twin for each state that may settle after a gap and still wait for events after it.

        In `a+ not_followed_by b gap 3` an a at t=1 is a match at t=4, while the loop waits for another a.
        Then the match must not settle again, and a b at t=10 forbids nothing.
        """
        gap = self.pattern.parts[-1].gap
        if self.pattern.parts[-1].link != "not_followed_by" or gap is None:
            return
        twins: dict[int, NfaState | None] = {}
        for state in list(self.states):
            if any(other.pending for other in reachable_states(state)):
                state.settle_wait, state.settled = gap, self._without_pending(state, twins)

    def _without_pending(self, state: NfaState, twins: dict[int, NfaState | None]) -> NfaState | None:
        """The state without the pending ones that it may proceed to; None if nothing is left."""
        if state.pending:
            return None
        if not any(other.pending for other in reachable_states(state)):
            return state
        if state.number not in twins:
            targets = [
                (predicate, self._without_pending(other, twins)) for predicate, other in state.proceeds
            ]
            proceeds = [(predicate, target) for predicate, target in targets if target is not None]
            is_empty = state.take is None and state.ignore is None and not proceeds
            fields = {
                name: getattr(state, name) for name in ("step", "take", "to", "ignore", "stay", "nots", "gap")
            }
            twins[state.number] = (
                None if is_empty else self._add_state(**fields, proceeds=proceeds, has_settled=True)
            )
        return twins[state.number]

    def _add_state(self, **fields: Any) -> NfaState:
        if len(self.states) >= 2 * MAX_STATES:
            raise DefinitionError(
                f"a pattern becomes more than {2 * MAX_STATES:,} states; use fewer "
                "optional parts and repetitions"
            )
        state = NfaState(len(self.states), **fields)
        self.states.append(state)
        return state

    def _build_parts(
        self,
        parts: tuple[PatternPart, ...],
        place: int,
        forbidden: ForbiddenPredicates,
        guard: Predicate | None,
        sink: Continuation,
        context: PartContext,
    ) -> NfaState:
        """The state that waits for the part at `place`, and after it for those behind it."""
        if place == len(parts):
            return sink(forbidden, guard)
        part = parts[place]
        following = _memoize(
            lambda forbidden, guard: self._build_parts(
                parts, place + 1, forbidden, guard, sink, context.for_later_parts
            )
        )
        if part.link == "not_followed_by":
            refused = self._forbidden_predicate(part, context)
            if place < len(parts) - 1:
                return following((*forbidden, refused), guard)
            return self._build_pending(part, (refused, *forbidden), guard)
        if part.link == "not_next":
            return self._build_not_next(part, following(forbidden, None), guard, context)
        follows = (
            context.forbidden_after
            if place == len(parts) - 1
            else tuple(
                self._forbidden_predicate(later, context) for later in _forbidden_parts_after(parts, place)
            )
        )
        if part.parts:
            return self._build_group(part, forbidden, guard, following, context, follows)
        after_loop = follows if part.is_repeated else ()
        return self._build_step(part, forbidden, guard, following, context, after_loop)

    def _build_pending(
        self, part: PatternPart, forbidden: ForbiddenPredicates, guard: Predicate | None
    ) -> NfaState:
        """The state of a `not_followed_by` at the end of the pattern:
        it ignores events until its time is over.
        """
        ignore = ALWAYS if guard is None else negate(guard)
        state = self._add_state(ignore=ignore, nots=forbidden, gap=part.gap, pending=True)
        state.stay = state
        return state

    def _build_not_next(
        self, part: PatternPart, after: NfaState, guard: Predicate | None, context: PartContext
    ) -> NfaState:
        """The state of a `not_next`.
        An event that a greedy loop before it keeps is neither forbidden nor passes.
        """
        refused = self._forbidden_predicate(part, context)
        state = self._add_state(nots=(refused if guard is None else require_both(refused, negate(guard)),))
        passes = negate(refused) if guard is None else require_both(negate(refused), negate(guard))
        if after is self.final:
            state.ignore, state.stay = passes, after
        else:
            state.proceeds = [(passes, after)]
        return state

    def _forbidden_predicate(self, part: PatternPart, context: PartContext) -> Predicate:
        return _exclude(self.predicates.compile(part.where), context.untils)

    def _build_step(
        self,
        part: PatternPart,
        forbidden: ForbiddenPredicates,
        guard: Predicate | None,
        following: Continuation,
        context: PartContext,
        after_loop: ForbiddenPredicates,
    ) -> NfaState:
        predicates, step = self._step_predicates(part, context), self.names.index(part.name)
        greedy, loop_gap = _greedy_guard(part, predicates), part.loop_gap

        def exits(before: ForbiddenPredicates) -> list[tuple[Predicate, NfaState]]:
            return _exits_of_greedy_loop(before, greedy, predicates, following) or [
                (_exclude(ALWAYS, context.untils), following(before, greedy))
            ]

        inner = {"step": step, "take": predicates.take, "nots": after_loop, "gap": loop_gap}
        if part.most is None:
            target = self._add_state(**inner)
            target.to, target.proceeds = target, exits(())
            self._add_waiting(target, predicates.ignore_between, (inner | {"to": target}))
            more = 0
        else:
            target, more = following((), greedy), part.most - part.least
        for turn in range(more + part.least - 1):
            state = self._add_state(**inner, to=target)
            state.proceeds = exits(()) if turn < more else []
            self._add_waiting(state, predicates.ignore_between, inner | {"to": target})
            target = state
        own = {
            "step": step,
            "take": predicates.take,
            "to": target,
            "nots": forbidden,
            "gap": context.gap if context.gap is not None else part.gap,
        }
        state = self._add_state(**own)
        state.proceeds = [
            *(exits(forbidden) if part.optional else []),
            *((ALWAYS, also) for also in context.also),
        ]
        self._add_waiting(state, predicates.ignore_before, own)
        return _apply_guard(state, guard)

    def _add_waiting(self, state: NfaState, ignore: Predicate | None, fields: dict[str, Any]) -> None:
        """Lets a state ignore events.
        One that also proceeds does so only at its first event, then waits in a state beside it.
        """
        if ignore is None:
            return
        if not state.proceeds:
            state.ignore, state.stay = ignore, state
            return
        waiting = self._add_state(**fields, ignore=ignore)
        waiting.stay = waiting
        state.ignore, state.stay = ignore, waiting

    def _step_predicates(self, part: PatternPart, context: PartContext) -> StepPredicates:
        where = self.predicates.compile(part.where)
        until = self.predicates.compile(part.until) if part.until is not None else None
        own = () if until is None else (until,)

        def passes(contiguity: InnerContiguity, excluded: tuple[Predicate, ...]) -> Predicate | None:
            if contiguity == "strict":
                return None
            return _exclude(ALWAYS if contiguity == "any" else negate(where), excluded)

        first = passes(context.contiguity or CONTIGUITY[part.link], context.untils)
        return StepPredicates(
            _exclude(where, (*own, *context.untils)),
            first,
            passes(part.inner, (*own, *context.untils)),
            until,
        )

    def _build_group(
        self,
        part: PatternPart,
        forbidden: ForbiddenPredicates,
        guard: Predicate | None,
        following: Continuation,
        context: PartContext,
        after: ForbiddenPredicates,
    ) -> NfaState:
        until_predicates = (
            *context.untils,
            *((self.predicates.compile(part.until),) if part.until is not None else ()),
        )
        turn_context = PartContext(until_predicates, part.inner, part.loop_gap, forbidden_after=after)
        if part.most is None:
            target, more = self._build_endless_turns(part, following, turn_context), 0
        else:
            target, more = following, part.most - part.least
        for number in range(more + part.least - 1):
            target = _memoize(
                self._build_turn(
                    part,
                    target,
                    replace(turn_context, also=(following((), None),)) if number < more else turn_context,
                )
            )
        gap = context.gap if context.gap is not None else part.gap
        also = (
            *context.also,
            *((self._skip_group(part, forbidden, following, until_predicates),) if part.optional else ()),
        )
        return self._build_parts(
            part.parts,
            0,
            forbidden,
            guard,
            target,
            PartContext(until_predicates, context.contiguity or CONTIGUITY[part.link], gap, also, after),
        )

    def _build_endless_turns(
        self, part: PatternPart, following: Continuation, turn_context: PartContext
    ) -> Continuation:
        """The turns of a group without limit:
        each ends in one state that begins another turn, or leaves the group.
        """
        turn = self._add_state()
        end_turn = _memoize(
            lambda _nots, guard: turn if guard is None else self._add_state(proceeds=[(negate(guard), turn)])
        )
        context = replace(turn_context, also=(following((), None),))
        turn.proceeds = [(ALWAYS, self._build_parts(part.parts, 0, (), None, end_turn, context))]
        return end_turn

    def _skip_group(
        self,
        part: PatternPart,
        forbidden: ForbiddenPredicates,
        following: Continuation,
        until_predicates: ForbiddenPredicates,
    ) -> NfaState:
        """The state after a group that is skipped.
        A greedy loop at the group's end still keeps the events that it takes.
        """
        while part.parts:
            part = part.parts[-1]
        predicates = self._step_predicates(part, PartContext(until_predicates))
        greedy = _greedy_guard(part, predicates)
        exits = _exits_of_greedy_loop(forbidden, greedy, predicates, following)
        return self._add_state(proceeds=exits) if exits else following(forbidden, greedy)

    def _build_turn(self, part: PatternPart, target: Continuation, context: PartContext) -> Continuation:
        return lambda forbidden, guard: self._build_parts(
            part.parts, 0, (*forbidden, *context.forbidden_after), guard, target, context
        )


def list_conditions(pattern: Pattern) -> list[Condition | None]:
    """All conditions of a pattern, those of `until` and of groups included."""

    def inside(part: PatternPart) -> list[Condition | None]:
        return [part.where, part.until, *(found for inner in part.parts for found in inside(inner))]

    return [found for part in pattern.parts for found in inside(part)]


def _forbidden_parts_after(parts: tuple[PatternPart, ...], place: int) -> list[PatternPart]:
    found: list[PatternPart] = []
    for part in parts[place + 1 :]:
        if part.link != "not_followed_by":
            break
        found.append(part)
    return found


def _greedy_guard(part: PatternPart, predicates: StepPredicates) -> Predicate | None:
    """The events that a greedy loop takes in preference to the part after it."""
    return predicates.take if part.greedy and part.least != part.most else None


def _exits_of_greedy_loop(
    before: ForbiddenPredicates, greedy: Predicate | None, predicates: StepPredicates, following: Continuation
) -> list[tuple[Predicate, NfaState]]:
    """The exits of a greedy loop with `until`: once that holds, the loop keeps no events for itself."""
    if greedy is None or predicates.until is None:
        return []
    return [
        (predicates.until, following(before, None)),
        (negate(predicates.until), following(before, greedy)),
    ]


def _exclude(predicate: Predicate, excluded: tuple[Predicate, ...]) -> Predicate:
    for until in excluded:
        predicate = require_both(predicate, negate(until))
    return predicate


def _apply_guard(state: NfaState, guard: Predicate | None) -> NfaState:
    """Makes the state after a greedy loop leave alone every event that the loop takes."""
    if guard is not None:
        left = negate(guard)
        state.take = None if state.take is None else require_both(state.take, left)
        state.ignore = None if state.ignore is None else require_both(state.ignore, left)
        state.proceeds = [(require_both(predicate, left), target) for predicate, target in state.proceeds]
    return state


def _memoize(sink: Continuation) -> Continuation:
    """Builds each state once: the paths that lead to the same continuation share its state."""
    states: dict[tuple[ForbiddenPredicates, Predicate | None], NfaState] = {}

    def get_state(forbidden: ForbiddenPredicates, guard: Predicate | None) -> NfaState:
        if (forbidden, guard) not in states:
            states[forbidden, guard] = sink(forbidden, guard)
        return states[forbidden, guard]

    return get_state
