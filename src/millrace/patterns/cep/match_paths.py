"""Which step of a regular pattern took which row of a match.

Rows of a regular pattern decide by their masks alone. So two matches whose rows have the same masks take them
for the same steps, and the automaton follows one of them only. A stream has few sequences of masks: of those
of `a b+ c`, which are a c, a b c, a b b c …, most matches are a handful.

With `a b+ c` and the masks of a b b c:

    rows 0 1 2 3 from the beginning, taken for the steps a b b c
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace.durations import BEFORE_ALL
from millrace.patterns.cep.partial_matches import FoundMatch, KeyRows, MatchResults, NfaRunner, PartialMatches
from millrace.patterns.cep.shared_buffer import walk_back

MAX_SEQUENCES = 10_000
"""How many sequences of masks are remembered."""


class MatchPath(NamedTuple):
    """The events of one match, the oldest first: how far each is behind the first one, and its step."""

    rows: Sequence[int]
    steps: Sequence[int]


class PathsFromStart(NamedTuple):
    """The matches, and the timeouts, that begin with the first of some rows."""

    matches: Sequence[MatchPath]
    timeouts: Sequence[MatchPath]


@dataclass(frozen=True, eq=False)
class MatchPaths:
    """The paths of a pattern, worked out as they are asked for."""

    runner: NfaRunner
    _known: dict[tuple[bool, bytes], PathsFromStart] = field(default_factory=dict)

    def find(self, masks: Sequence[int], sequence: bytes, time: int, *, is_overdue: bool) -> PathsFromStart:
        """The paths from the first of rows with these masks, of which `sequence` are the bytes.

        `time`: that of the first row; `is_overdue`: whether its time is over after the last one.
        """
        known = self._known.get((is_overdue, sequence))
        if known is None:
            if len(self._known) >= MAX_SEQUENCES:
                self._known.clear()
            known = self._known[is_overdue, sequence] = self._follow(masks, time, is_overdue=is_overdue)
        return known

    def _follow(self, masks: Sequence[int], time: int, *, is_overdue: bool) -> PathsFromStart:
        found, count = MatchResults([], []), len(masks)
        nothing: list[tuple[()]] = [()] * count
        begins = [True] + [False] * (count - 1)
        rows = KeyRows(masks, [time] * count, nothing, nothing, begins, 0, count)
        until = time + (self.runner.span or 0) if is_overdue else BEFORE_ALL
        self.runner.advance(PartialMatches(), rows, until, found, is_ended=False)
        return PathsFromStart(_paths_of(found.matches), _paths_of(found.timeouts))


def _paths_of(found: list[FoundMatch]) -> list[MatchPath]:
    """The paths of those that begin with the first row."""
    paths = []
    for match in found:
        if match.start.seq == 0:
            entries = [*walk_back(match.tail, 0)][::-1]
            paths.append(MatchPath([entry.event.seq for entry in entries], [entry.step for entry in entries]))
    return paths
