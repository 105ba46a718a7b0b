"""A pattern as states: what a match that has come so far may do with the next event.

It may take it and go on, pass over it and wait, or do what the state after it does (a step that may be left out, a loop that may
end). Every way is tried; a match that has begun is thus as many partial matches as there are ways. The states are built from the end:
each part is told where matches go on after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.errors import DefinitionError
from millrace.patterns.builder import Pattern
from millrace.patterns.cep.predicates import ALWAYS, Test, Tests, both, negated
from millrace.patterns.conditions import Condition
from millrace.patterns.parts import CONTIGUITY, MOST_STATES, Inner, Part


@dataclass(eq=False)
class State:
    """Where a partial match stands. It can be told by its number, in the same pattern always the same."""

    number: int
    step: int = -1
    take: Test | None = None
    to: State | None = None
    ignore: Test | None = None
    stay: State | None = None
    proceeds: list[tuple[Test, State]] = field(default_factory=list)
    """What it may also do: as these states do."""
    nots: tuple[Test, ...] = ()
    """What must not come: a match that stands here is given up."""
    gap: int | None = None
    """It takes and passes over only what comes in less than this after the event before."""
    final: bool = False
    pending: bool = False
    """Nothing more is to come, if time passes."""
    ends: bool = False
    """Whether a match that comes here may be over."""
    settles: bool = False
    """Whether a match that stands here is one when its time is over."""
    wait: int | None = None
    """How long after the event before it something may still come of it."""


Nots = tuple[Test, ...]
Sink = Callable[[Nots, Test | None], State]
"""Where matches go on: with what must not come before, and what a greedy loop before it keeps for itself."""


@dataclass(frozen=True)
class Around:
    """What surrounds a part: the groups it is in may end, and the first part of a group has the group's link."""

    untils: tuple[Test, ...] = ()
    contiguity: Inner | None = None
    gap: int | None = None
    also: tuple[State, ...] = ()
    """States that the first state of a group may proceed to, too: what follows the group."""
    after: Nots = ()
    """What must not follow the group: nor may it come between the turns of a loop at the group's end."""

    @property
    def later(self) -> Around:
        """The same for parts that are not the first."""
        return Around(self.untils, after=self.after)


@dataclass(frozen=True)
class Ways:
    """The tests of one step."""

    take: Test
    first: Test | None
    """What is passed over before its first event; None: nothing."""
    between: Test | None
    """What is passed over between its events."""
    until: Test | None


@dataclass
class Automaton:
    """The states of a pattern."""

    pattern: Pattern
    tests: Tests
    states: list[State] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = [step.name for step in self.pattern.steps]
        self.final = self._state(final=True)
        self.start = self._enter(self.pattern.parts, 0, (), None, lambda _nots, _guard: self.final, Around())
        for state in self.states:
            near = list(reachable(state))
            state.ends = any(other.final for other in near)
            state.settles = any(other.pending for other in near)
            gaps = [other.gap for other in near if other.take is not None or other.ignore is not None]
            state.wait = None if not gaps or None in gaps else max(gap for gap in gaps if gap is not None)

    def _state(self, **said: Any) -> State:
        if len(self.states) >= 2 * MOST_STATES:
            raise DefinitionError(
                f"a pattern becomes more than {2 * MOST_STATES:,} states; use fewer optional parts and repetitions"
            )
        state = State(len(self.states), **said)
        self.states.append(state)
        return state

    def _enter(
        self, parts: tuple[Part, ...], place: int, nots: Nots, guard: Test | None, sink: Sink, around: Around
    ) -> State:
        """The state in which the part at `place` and those after it are waited for."""
        if place == len(parts):
            return sink(nots, guard)
        part = parts[place]
        rest = _once(lambda nots, guard: self._enter(parts, place + 1, nots, guard, sink, around.later))
        if part.link == "not_followed_by":
            refused = self._refused(part, around)
            if place == len(parts) - 1:
                ignore = ALWAYS if guard is None else negated(guard)
                state = self._state(ignore=ignore, nots=(refused, *nots), gap=part.gap, pending=True)
                state.stay = state
                return state
            return rest((*nots, refused), guard)
        if part.link == "not_next":
            after = rest(nots, None)
            refused = self._refused(part, around)
            state = self._state(nots=(refused if guard is None else both(refused, negated(guard)),))
            passed = negated(refused) if guard is None else both(negated(refused), negated(guard))
            if after is self.final:
                state.ignore, state.stay = passed, after
            else:
                state.proceeds = [(passed, after)]
            return state
        follows = (
            around.after
            if place == len(parts) - 1
            else tuple(self._refused(later, around) for later in _nots_after(parts, place))
        )
        if part.inside:
            return self._group(part, nots, guard, rest, around, follows)
        after_loop = follows if part.repeated else ()
        return self._step(part, nots, guard, rest, around, after_loop)

    def _refused(self, part: Part, around: Around) -> Test:
        return _unless(self.tests.of(part.where), around.untils)

    def _step(
        self, part: Part, nots: Nots, guard: Test | None, rest: Sink, around: Around, after_loop: Nots
    ) -> State:
        ways, step = self._ways(part, around), self.names.index(part.name)
        greedy, loop_gap = _kept_by(part, ways), part.loop_gap

        def exits(before: Nots) -> list[tuple[Test, State]]:
            return _left(before, greedy, ways, rest) or [
                (_unless(ALWAYS, around.untils), rest(before, greedy))
            ]

        inner = {"step": step, "take": ways.take, "nots": after_loop, "gap": loop_gap}
        if part.most is None:
            target = self._state(**inner)
            target.to, target.proceeds = target, exits(())
            self._waits(target, ways.between, (inner | {"to": target}))
            more = 0
        else:
            target, more = rest((), greedy), part.most - part.least
        for turn in range(more + part.least - 1):
            state = self._state(**inner, to=target)
            state.proceeds = exits(()) if turn < more else []
            self._waits(state, ways.between, inner | {"to": target})
            target = state
        own = {
            "step": step,
            "take": ways.take,
            "to": target,
            "nots": nots,
            "gap": around.gap if around.gap is not None else part.gap,
        }
        state = self._state(**own)
        state.proceeds = [*(exits(nots) if part.optional else []), *((ALWAYS, also) for also in around.also)]
        self._waits(state, ways.first, own)
        return _guarded(state, guard)

    def _waits(self, state: State, ignore: Test | None, said: dict[str, Any]) -> None:
        """Lets a state wait: where it may also proceed, it does so only at the first event, and then waits beside."""
        if ignore is None:
            return
        if not state.proceeds:
            state.ignore, state.stay = ignore, state
            return
        waiting = self._state(**said, ignore=ignore)
        waiting.stay = waiting
        state.ignore, state.stay = ignore, waiting

    def _ways(self, part: Part, around: Around) -> Ways:
        where = self.tests.of(part.where)
        until = self.tests.of(part.until) if part.until is not None else None
        own = () if until is None else (until,)

        def passes(contiguity: Inner, ended: tuple[Test, ...]) -> Test | None:
            if contiguity == "strict":
                return None
            return _unless(ALWAYS if contiguity == "any" else negated(where), ended)

        first = passes(around.contiguity or CONTIGUITY[part.link], around.untils)
        return Ways(
            _unless(where, (*own, *around.untils)), first, passes(part.inner, (*own, *around.untils)), until
        )

    def _group(
        self, part: Part, nots: Nots, guard: Test | None, rest: Sink, around: Around, after: Nots
    ) -> State:
        untils = (*around.untils, *((self.tests.of(part.until),) if part.until is not None else ()))
        again = Around(untils, part.inner, part.loop_gap, after=after)
        if part.most is None:
            turn = self._state()
            sink = _once(
                lambda _nots, guard: turn if guard is None else self._state(proceeds=[(negated(guard), turn)])
            )
            turn.proceeds = [
                (ALWAYS, self._enter(part.inside, 0, (), None, sink, replace(again, also=(rest((), None),))))
            ]
            target, more = sink, 0
        else:
            target, more = rest, part.most - part.least
        for number in range(more + part.least - 1):
            target = _once(
                self._turn(part, target, replace(again, also=(rest((), None),)) if number < more else again)
            )
        gap = around.gap if around.gap is not None else part.gap
        also = (*around.also, *((self._left_out(part, nots, guard, rest, untils),) if part.optional else ()))
        return self._enter(
            part.inside,
            0,
            nots,
            guard,
            target,
            Around(untils, around.contiguity or CONTIGUITY[part.link], gap, also, after),
        )

    def _left_out(self, part: Part, nots: Nots, guard: Test | None, rest: Sink, untils: Nots) -> State:
        """What follows a group that is left out: a greedy loop at the end of the group keeps its events all the same."""
        while part.inside:
            part = part.inside[-1]
        ways = self._ways(part, Around(untils))
        greedy = _kept_by(part, ways)
        exits = _left(nots, greedy, ways, rest)
        return self._state(proceeds=exits) if exits else rest(nots, greedy or guard)

    def _turn(self, part: Part, target: Sink, around: Around) -> Sink:
        return lambda nots, guard: self._enter(part.inside, 0, (*nots, *around.after), guard, target, around)


def reachable(state: State) -> Iterator[State]:
    """A state and those that it may do as."""
    stack, seen = [state], {state.number}
    while stack:
        here = stack.pop()
        yield here
        for _, target in here.proceeds:
            if target.number not in seen:
                seen.add(target.number)
                stack.append(target)


def passes_over(automaton: Automaton, mask: int, *, timeouts: bool) -> bool:
    """Whether every match that has begun passes over an event with such a mask, and can go on after it exactly as before.

    `timeouts`: and is not divided into two with the same events, of which each would have a timeout of its own.
    """
    stood = {
        other.number: other
        for state in automaton.states
        for other in (state.to, state.stay)
        if other is not None and not other.final
    }
    return all(
        _stays(other, mask) and (other is state or (not timeouts and other.nots == state.nots))
        for state in stood.values()
        for other in reachable(state)
        if not other.final
    )


def _stays(state: State, mask: int) -> bool:
    if any(not test.must(mask) for test, _ in state.proceeds) or any(test.may(mask) for test in state.nots):
        return False
    if state.take is None and state.ignore is None:
        return bool(state.proceeds)
    if (state.take is not None and state.take.may(mask)) or state.ignore is None or state.stay is None:
        return False
    return state.ignore.must(mask) and (
        state.stay is state or (state.stay.take is state.take and state.stay.nots == state.nots)
    )


def conditions(pattern: Pattern) -> list[Condition | None]:
    """Every condition of a pattern."""

    def inside(part: Part) -> list[Condition | None]:
        return [part.where, part.until, *(found for inner in part.inside for found in inside(inner))]

    return [found for part in pattern.parts for found in inside(part)]


def _nots_after(parts: tuple[Part, ...], place: int) -> list[Part]:
    found: list[Part] = []
    for part in parts[place + 1 :]:
        if part.link != "not_followed_by":
            break
        found.append(part)
    return found


def _kept_by(part: Part, ways: Ways) -> Test | None:
    """What a greedy loop keeps for itself."""
    return ways.take if part.greedy and part.least != part.most else None


def _left(before: Nots, greedy: Test | None, ways: Ways, rest: Sink) -> list[tuple[Test, State]]:
    """What follows a greedy loop that its `until` may end: then it keeps nothing."""
    if greedy is None or ways.until is None:
        return []
    return [(ways.until, rest(before, None)), (negated(ways.until), rest(before, greedy))]


def _unless(test: Test, ended: tuple[Test, ...]) -> Test:
    for until in ended:
        test = both(test, negated(until))
    return test


def _guarded(state: State, guard: Test | None) -> State:
    """A state after a greedy loop: what the loop would take is the loop's."""
    if guard is not None:
        left = negated(guard)
        state.take = None if state.take is None else both(state.take, left)
        state.ignore = None if state.ignore is None else both(state.ignore, left)
        state.proceeds = [(both(test, left), target) for test, target in state.proceeds]
    return state


def _once(sink: Sink) -> Sink:
    """The same state for the same question."""
    known: dict[tuple[Nots, Test | None], State] = {}

    def remembered(nots: Nots, guard: Test | None) -> State:
        if (nots, guard) not in known:
            known[nots, guard] = sink(nots, guard)
        return known[nots, guard]

    return remembered
