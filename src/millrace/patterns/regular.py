"""Regular patterns (strict contiguity, conditions on the row alone) as an automaton over bit masks, all beginnings at once.

It says from which rows something can come: a match, or a partial match that is still open where the rows or its time end. Only
those are followed one by one. A step of the loop moves every beginning that is still open by one row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.patterns.automaton import Automaton, State, reachable
from millrace.patterns.memory import Event

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def is_regular(automaton: Automaton) -> bool:
    """Whether the masks of the rows decide everything, and nothing is passed over."""
    tests = [test for state in automaton.states for test in (state.take, *(test for test, _ in state.proceeds)) if test is not None]
    plain = all(state.ignore is None and not state.nots and state.gap is None and not state.pending for state in automaton.states)
    return plain and all(test.pure for test in tests)


@dataclass
class Regular:
    """The automaton made deterministic as far as it was needed: sets of states, and where each mask leads from them."""

    start: State
    sets: list[frozenset[int]] = field(default_factory=list)
    states: dict[int, State] = field(default_factory=dict)
    ways: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict)
    """From a set, with a mask: the next set, and whether a match ends. The first set is empty, the second where all begins."""

    def __post_init__(self) -> None:
        self.sets = [frozenset(), frozenset({self.start.number})]
        self.states[self.start.number] = self.start

    def open(self, masks: Numbers, times: Numbers, keys: Numbers, begins: Flags, span: int) -> Flags:
        """Of the rows with which a match may begin, those from which something comes; rows of a key stand together, in order."""
        names, symbols = np.unique(masks, return_inverse=True)
        kept = np.zeros(len(masks), dtype=np.bool_)
        starts = np.flatnonzero(begins)
        here = starts.copy()
        sets = np.ones(len(starts), dtype=np.int64)
        while len(starts):
            nexts, over = self._table(sets, [int(name) for name in names])
            ended = over[sets, symbols[here]]
            sets = nexts[sets, symbols[here]]
            kept[starts[ended]] = True
            going = (sets != 0) & ~ended
            starts, here, sets = starts[going], here[going] + 1, sets[going]
            outside = here >= len(masks)
            inside = np.where(outside, 0, here)
            cut = outside | (keys[inside] != keys[starts]) | (times[inside] - times[starts] >= span)
            kept[starts[cut]] = True
            starts, here, sets = starts[~cut], here[~cut], sets[~cut]
        return kept

    def _table(self, sets: Numbers, names: list[int]) -> tuple[Numbers, Any]:
        """Where the sets at hand lead with each mask."""
        for place in np.unique(sets).tolist():
            for name in names:
                if (place, name) not in self.ways:
                    self.ways[place, name] = self._way(place, name)
        nexts = np.zeros((len(self.sets), len(names)), dtype=np.int64)
        over = np.zeros((len(self.sets), len(names)), dtype=np.bool_)
        for (place, name), (to, ends) in self.ways.items():
            if name in names:
                nexts[place, names.index(name)], over[place, names.index(name)] = to, ends
        return nexts, over

    def _way(self, place: int, mask: int) -> tuple[int, bool]:
        event = Event(0, 0, mask, ())
        after: dict[int, State] = {}
        for number in self.sets[place]:
            stack = [self.states[number]]
            while stack:
                state = stack.pop()
                stack += [target for test, target in state.proceeds if test.holds(event, None)]
                if state.take is not None and state.to is not None and state.take.holds(event, None):
                    after[state.to.number] = state.to
        self.states |= after
        reached = frozenset(number for number, state in after.items() if not state.final)
        if reached not in self.sets:
            self.sets.append(reached)
        return self.sets.index(reached), any(other.final for state in after.values() for other in reachable(state))
