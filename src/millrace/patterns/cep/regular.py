"""Regular patterns (strict contiguity, conditions on the row alone) as an automaton over bit masks, all beginnings at once.

A step of the loop moves every beginning that is still open by one row. What it says of a beginning is where matches end and whether more
may come; which step took which row is asked only of the few from which something came.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from millrace.patterns.cep.match_buffer import Event
from millrace.patterns.cep.nfa import Automaton, State, reachable

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MOST_BITS = 8
"""With more conditions than this, the table would cost more than it saves."""


def is_regular(automaton: Automaton) -> bool:
    """Whether the masks of the rows decide everything, and nothing is passed over."""
    tests = [
        test
        for state in automaton.states
        for test in (state.take, *(test for test, _ in state.proceeds))
        if test is not None
    ]
    plain = all(
        state.ignore is None and not state.nots and state.gap is None and not state.pending
        for state in automaton.states
    )
    return plain and all(test.pure for test in tests) and len(automaton.tests.bits) <= MOST_BITS


@dataclass(frozen=True)
class Stretches:
    """What came of each beginning, in the order of the rows they begin with."""

    starts: Numbers
    latest: Numbers
    """The row with which its latest match ended; -1: none did."""
    until: Numbers
    """The row behind the last that it looked at."""
    open: Flags
    """Whether the rows of the key ended before it did."""
    overdue: Flags
    """Whether its time was over before it was."""


@dataclass
class Regular:
    """The automaton made deterministic as far as it was needed: sets of states, and where each mask leads from them."""

    automaton: Automaton
    states: dict[int, State] = field(default_factory=dict)
    sets: dict[frozenset[int], int] = field(default_factory=dict)
    """Sets of states by number: the empty one is the first, the one where all begins the second."""

    def __post_init__(self) -> None:
        start = self.automaton.start
        self.states[start.number] = start
        self.sets = {frozenset(): 0, frozenset({start.number}): 1}
        self.table = np.full((2, 1 << len(self.automaton.tests.bits)), -1, dtype=np.int64)
        """From a set, with a mask: twice the next set, and one more if a match ends; -1: not asked yet."""

    def follow(
        self, masks: Numbers, times: Numbers, ends: Numbers, starts: Numbers, span: int, *, once: bool
    ) -> Stretches:
        """Follows beginnings; `ends` says of each row where the rows of its key end. `once`: only to the end of the first match."""
        latest, until = (np.full(len(starts), -1, dtype=np.int64) for _ in range(2))
        open_, overdue = np.zeros(len(starts), dtype=np.bool_), np.zeros(len(starts), dtype=np.bool_)
        alive, here, sets = np.arange(len(starts)), starts, np.ones(len(starts), dtype=np.int64)
        last = max(len(masks) - 1, 0)
        while len(alive):
            led = self._led(sets, masks[here])
            done, sets = (led & 1).astype(np.bool_), led >> 1
            latest[alive[done]] = here[done]
            until[alive] = here + 1
            going = (sets != 0) & ~done if once else sets != 0
            alive, here, sets = alive[going], here[going] + 1, sets[going]
            outside = here >= ends[starts[alive]]
            late = ~outside & (times[np.minimum(here, last)] - times[starts[alive]] >= span)
            open_[alive[outside]], overdue[alive[late]] = True, True
            inside = ~(outside | late)
            alive, here, sets = alive[inside], here[inside], sets[inside]
        return Stretches(starts, latest, until, open_, overdue)

    def _led(self, sets: Numbers, masks: Numbers) -> Numbers:
        """Where the sets lead with these masks."""
        led: Numbers = self.table[sets, masks]
        while (unknown := led < 0).any():
            for place, mask in {*zip(sets[unknown].tolist(), masks[unknown].tolist(), strict=True)}:
                self._ask(place, mask)
            led = self.table[sets, masks]
        return led

    def _ask(self, place: int, mask: int) -> None:
        event = Event(0, 0, mask, ())
        after: dict[int, State] = {}
        for number in list(self.sets)[place]:
            stack = [self.states[number]]
            while stack:
                state = stack.pop()
                stack += [target for test, target in state.proceeds if test.holds(event, None)]
                if state.take is not None and state.to is not None and state.take.holds(event, None):
                    after[state.to.number] = state.to
        self.states |= after
        reached = frozenset(number for number, state in after.items() if not state.final)
        if reached not in self.sets:
            self.sets[reached] = len(self.sets)
            self.table = np.vstack([self.table, np.full((1, self.table.shape[1]), -1, dtype=np.int64)])
        ends = any(other.final for state in after.values() for other in reachable(state))
        self.table[place, mask] = 2 * self.sets[reached] + ends
