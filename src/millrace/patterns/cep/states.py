"""The states of the automaton of a pattern (`nfa.py`), and their properties that need no event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from millrace.patterns.cep.predicates import Predicate


@dataclass(eq=False)
class NfaState:
    """Where a partial match stands.
    Stored partial matches name it by its number, which depends on the pattern alone.
    """

    number: int
    step: int = -1
    take: Predicate | None = None
    to: NfaState | None = None
    ignore: Predicate | None = None
    stay: NfaState | None = None
    proceeds: list[tuple[Predicate, NfaState]] = field(default_factory=list)
    """States that see the same event if the predicate holds."""
    nots: tuple[Predicate, ...] = ()
    """An event for which one of these holds ends a partial match that stands here."""
    gap: int | None = None
    """It takes and ignores only events less than this after the event taken before."""
    final: bool = False
    pending: bool = False
    """A `not_followed_by` at the end of the pattern: the match is complete when its time is over."""
    may_end: bool = False
    """Whether the final state can be reached without an event."""
    may_settle: bool = False
    """Whether a pending state can be reached without an event."""
    max_wait: int | None = None
    """How long after the event taken before it the state can still do something; None: without limit."""
    settle_wait: int | None = None
    """How long after that event a pending state with a gap is a match."""
    settled: NfaState | None = None
    """The same state without its pending states:
    where a match goes on that was complete after `settle_wait`.
    """
    has_settled: bool = False
    """Whether it is such a state."""


def reachable_states(state: NfaState) -> Iterator[NfaState]:
    """A state, and all that it can proceed to without an event."""
    stack, seen = [state], {state.number}
    while stack:
        current = stack.pop()
        yield current
        for _, target in current.proceeds:
            if target.number not in seen:
                seen.add(target.number)
                stack.append(target)


def is_always_ignored(states: Iterable[NfaState], mask: int, *, timeouts: bool) -> bool:
    """Whether every partial match ignores an event with such a mask and is in an equal state after it.

    With `timeouts`, it must also not become two partial matches with the same events: each would time out on
    its own.
    """
    positions = {
        other.number: other
        for state in states
        for other in (state.to, state.stay)
        if other is not None and not other.final
    }
    return all(
        _ignores_event(other, mask) and (other is state or (not timeouts and other.nots == state.nots))
        for state in positions.values()
        for other in reachable_states(state)
        if not other.final
    )


def _ignores_event(state: NfaState, mask: int) -> bool:
    if any(not predicate.must_hold(mask) for predicate, _ in state.proceeds) or any(
        predicate.may_hold(mask) for predicate in state.nots
    ):
        return False
    if state.take is None and state.ignore is None:
        return bool(state.proceeds)
    if (state.take is not None and state.take.may_hold(mask)) or state.ignore is None or state.stay is None:
        return False
    return state.ignore.must_hold(mask) and (
        state.stay is state or (state.stay.take is state.take and state.stay.nots == state.nots)
    )
