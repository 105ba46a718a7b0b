"""Regular patterns (strict contiguity, conditions on the row alone) as an automaton over bit masks, all beginnings at once.

A step of the loop moves every beginning that is still open by one row. What it says of a beginning is where matches end and whether more
may come; which step took which row is asked only of the few from which something came.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from millrace.patterns.cep.nfa import Nfa, NfaState, reachable_states
from millrace.patterns.cep.shared_buffer import PatternEvent

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAX_BITS = 8
"""With more conditions than this, the table would cost more than it saves."""


def is_regular(nfa: Nfa) -> bool:
    """Whether the masks of the rows decide everything, and nothing is passed over."""
    predicates = [
        predicate
        for state in nfa.states
        for predicate in (state.take, *(predicate for predicate, _ in state.proceeds))
        if predicate is not None
    ]
    plain = all(
        state.ignore is None and not state.nots and state.gap is None and not state.pending
        for state in nfa.states
    )
    return (
        plain
        and all(predicate.is_row_only for predicate in predicates)
        and len(nfa.predicates.bits) <= MAX_BITS
    )


@dataclass(frozen=True)
class ScanResults:
    """What came of each beginning, in the order of the rows they begin with."""

    starts: Numbers
    last_match_rows: Numbers
    """The row with which its latest match ended; -1: none did."""
    scanned_until: Numbers
    """The row behind the last that it looked at."""
    open: Flags
    """Whether the rows of the key ended before it did."""
    is_overdue: Flags
    """Whether its time was over before it was."""


@dataclass
class LazyDfa:
    """The automaton made deterministic as far as it was needed: sets of states, and where each mask leads from them."""

    nfa: Nfa
    states: dict[int, NfaState] = field(default_factory=dict)
    sets: dict[frozenset[int], int] = field(default_factory=dict)
    """Sets of states by number: the empty one is the first, the one where all begins the second."""

    def __post_init__(self) -> None:
        start = self.nfa.start
        self.states[start.number] = start
        self.sets = {frozenset(): 0, frozenset({start.number}): 1}
        self.table = np.full((2, 1 << len(self.nfa.predicates.bits)), -1, dtype=np.int64)
        """From a set, with a mask: twice the next set, and one more if a match ends; -1: not asked yet."""

    def scan(
        self, masks: Numbers, times: Numbers, ends: Numbers, starts: Numbers, span: int, *, first_only: bool
    ) -> ScanResults:
        """Follows beginnings; `ends` says of each row where the rows of its key end. `once`: only to the end of the first match."""
        last_match_rows, until = (np.full(len(starts), -1, dtype=np.int64) for _ in range(2))
        is_open, is_overdue = np.zeros(len(starts), dtype=np.bool_), np.zeros(len(starts), dtype=np.bool_)
        alive, rows, sets = np.arange(len(starts)), starts, np.ones(len(starts), dtype=np.int64)
        last = max(len(masks) - 1, 0)
        while len(alive):
            transitions = self._look_up(sets, masks[rows])
            has_match, sets = (transitions & 1).astype(np.bool_), transitions >> 1
            last_match_rows[alive[has_match]] = rows[has_match]
            until[alive] = rows + 1
            goes_on = (sets != 0) & ~has_match if first_only else sets != 0
            alive, rows, sets = alive[goes_on], rows[goes_on] + 1, sets[goes_on]
            outside = rows >= ends[starts[alive]]
            is_late = ~outside & (times[np.minimum(rows, last)] - times[starts[alive]] >= span)
            is_open[alive[outside]], is_overdue[alive[is_late]] = True, True
            inside = ~(outside | is_late)
            alive, rows, sets = alive[inside], rows[inside], sets[inside]
        return ScanResults(starts, last_match_rows, until, is_open, is_overdue)

    def _look_up(self, sets: Numbers, masks: Numbers) -> Numbers:
        """Where the sets lead with these masks."""
        transitions: Numbers = self.table[sets, masks]
        while (unknown := transitions < 0).any():
            for place, mask in {*zip(sets[unknown].tolist(), masks[unknown].tolist(), strict=True)}:
                self._add_transition(place, mask)
            transitions = self.table[sets, masks]
        return transitions

    def _add_transition(self, place: int, mask: int) -> None:
        event = PatternEvent(0, 0, mask, ())
        after: dict[int, NfaState] = {}
        for number in list(self.sets)[place]:
            stack = [self.states[number]]
            while stack:
                state = stack.pop()
                stack += [target for predicate, target in state.proceeds if predicate.holds(event, None)]
                if state.take is not None and state.to is not None and state.take.holds(event, None):
                    after[state.to.number] = state.to
        self.states |= after
        reached = frozenset(number for number, state in after.items() if not state.final)
        if reached not in self.sets:
            self.sets[reached] = len(self.sets)
            self.table = np.vstack([self.table, np.full((1, self.table.shape[1]), -1, dtype=np.int64)])
        ends = any(other.final for state in after.values() for other in reachable_states(state))
        self.table[place, mask] = 2 * self.sets[reached] + ends
