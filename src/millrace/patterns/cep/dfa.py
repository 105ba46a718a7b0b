"""Regular patterns as a deterministic automaton (DFA) over bit masks, run from all beginnings at once.

A pattern is regular if it ignores no event and its conditions look at the row alone. Then the mask of a row
(a bit per condition) is all that the automaton needs. A state of the DFA is a set of NFA states. Its table
maps a set and a mask to the next set, and is filled in as pairs occur (subset construction, lazily): of 256
possible masks a stream shows few.

Each round of the loop in `scan` moves every open beginning by one row, with numpy. So it runs as many rounds
as the longest open match has rows, however many rows and keys there are. With `a b+` and the rows a b b a b
of one key, which begin at 0 and 3:

    round 1   rows 0 3 (a a)    both continue
    round 2   rows 1 4 (b b)    both are matches now; the second is at the end of its rows, so it stays open
    round 3   row  2   (b)      the first is a match again
    round 4   row  3   (a)      the first ends, and row 2 was its last match

The result says where the latest match of a beginning ends, and whether more may follow. Which step took which
row is computed later, and only for the beginnings that are reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from millrace.patterns.cep.nfa import Nfa
from millrace.patterns.cep.shared_buffer import PatternEvent
from millrace.patterns.cep.states import NfaState, reachable_states

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAX_BITS = 8
"""The table has a column per mask. With more conditions it would cost more than it saves."""


def is_regular(nfa: Nfa) -> bool:
    """Whether masks alone decide, and no event is ignored."""
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
    """One entry for each beginning, in the order of their first rows."""

    starts: Numbers
    last_match_rows: Numbers
    """The last row of its latest match; -1: it has none."""
    scanned_until: Numbers
    """The row after the last one scanned."""
    open: Flags
    """Whether the rows of the key ended while a match was still possible."""
    is_overdue: Flags
    """Whether `within` ended while a match was still possible."""

    def without_failed(self) -> ScanResults:
        """Without the beginnings that came to nothing, which most do."""
        is_left = (self.last_match_rows >= 0) | self.open | self.is_overdue
        return ScanResults(
            self.starts[is_left],
            self.last_match_rows[is_left],
            self.scanned_until[is_left],
            self.open[is_left],
            self.is_overdue[is_left],
        )


@dataclass
class LazyDfa:
    """The DFA, built as far as scans have needed it."""

    nfa: Nfa
    states: dict[int, NfaState] = field(default_factory=dict)
    sets: dict[frozenset[int], int] = field(default_factory=dict)
    """Numbers of sets of NFA states: 0 is the empty set, 1 the set of the start state."""

    def __post_init__(self) -> None:
        start = self.nfa.start
        self.states[start.number] = start
        self.sets = {frozenset(): 0, frozenset({start.number}): 1}
        self.table = np.full((2, 1 << len(self.nfa.predicates.bits)), -1, dtype=np.int64)
        """By set and mask: 2 * next set, plus 1 if a match ends with the row; -1: not computed yet."""

    def scan(
        self, masks: Numbers, times: Numbers, ends: Numbers, starts: Numbers, span: int, *, first_only: bool
    ) -> ScanResults:
        """Runs the DFA from `starts`. `ends` has, for each row, the end of the rows of its key.
        `first_only` stops at the first match.
        """
        last_match_rows, until = (np.full(len(starts), -1, dtype=np.int64) for _ in range(2))
        is_open, is_overdue = np.zeros(len(starts), dtype=np.bool_), np.zeros(len(starts), dtype=np.bool_)
        alive, rows, sets = np.arange(len(starts)), starts, np.ones(len(starts), dtype=np.int64)
        limits, deadlines = ends[starts], times[starts] + span
        while len(alive):
            transitions = self._look_up(sets, masks.take(rows))
            has_match, sets = (transitions & 1).astype(np.bool_), transitions >> 1
            goes_on = (sets != 0) & ~has_match if first_only else sets != 0
            last_match_rows[alive[has_match]] = rows[has_match]
            rows = rows + 1
            until[alive] = rows
            alive, rows, sets, limits, deadlines = (
                array[goes_on] for array in (alive, rows, sets, limits, deadlines)
            )
            is_inside = rows < limits
            is_late = is_inside & (times.take(rows, mode="clip") >= deadlines)
            is_open[alive[~is_inside]], is_overdue[alive[is_late]] = True, True
            is_inside &= ~is_late
            alive, rows, sets, limits, deadlines = (
                array[is_inside] for array in (alive, rows, sets, limits, deadlines)
            )
        return ScanResults(starts, last_match_rows, until, is_open, is_overdue)

    def _look_up(self, sets: Numbers, masks: Numbers) -> Numbers:
        """The transitions of the sets by the masks, computed where they are new."""
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
