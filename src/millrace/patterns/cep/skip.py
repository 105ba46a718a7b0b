"""After-match skip strategies: which matches a match that was found rules out.

Matches of one key compete. A match rules out others that begin before a certain event, and one that began
earlier goes first. So a match that is complete waits while a partial match that began before it is still
open. With `a b+ c`, skip past last, and

    t=0 a   t=1 a   t=2 b   t=3 c

the match 0 2 3 and the match 1 2 3 are both complete at t=3. The first begins at t=0 and is released. Its
last event is at t=3, so matches may begin from t=4 on, and the match 1 2 3 is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from millrace.errors import NoPlaceToSkip

if TYPE_CHECKING:
    from millrace.patterns.cep.partial_matches import FoundMatch, PartialMatch

OnMiss = Literal["nothing", "error"]


@dataclass(frozen=True)
class SkipStrategy:
    """Where matching goes on after a match."""

    kind: Literal["none", "to_next", "past_last", "to_first", "to_last"] = "none"
    step: str | None = None
    on_miss: OnMiss = "nothing"

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.kind} {self.step}" if self.step else self.kind

    def next_start(self, first: int, last: int, step_events: Sequence[int] = ()) -> int:
        """The first event with which a later match may begin.

        Events are numbers in order. The match has events from `first` to `last`, and `step_events` of the
        step that is named.
        """
        if self.kind == "none":
            return 0
        if self.kind == "to_next":
            return first + 1
        if self.kind == "past_last":
            return last + 1
        target = None if not step_events else step_events[0 if self.kind == "to_first" else -1]
        if self.on_miss == "error" and target in (None, first):
            reason = (
                "has no event of that step"
                if target is None
                else "begins with that very event, so matching would not go on"
            )
            raise NoPlaceToSkip(
                f"skip {self}: a match {reason}; leave out on_miss='error', or skip to another step"
            )
        return target or 0


def release_matches(
    skip: SkipStrategy,
    step_names: Sequence[str],
    complete: list[FoundMatch],
    running: list[PartialMatch],
) -> tuple[list[FoundMatch], list[PartialMatch], list[FoundMatch]]:
    """The matches that are certain, and the partial and the complete matches that remain.

    `complete` is in order of first events. A match is certain once no partial match begins before it.
    """
    released: list[FoundMatch] = []
    while complete and all(complete[0].start.seq <= run.start.seq for run in running):
        match = complete.pop(0)
        events = () if skip.step is None else match.events_of(step_names.index(skip.step))
        first_allowed = skip.next_start(match.start.seq, match.tail.event.seq, events)
        complete = [other for other in complete if other.start.seq >= first_allowed]
        running = [run for run in running if run.start.seq >= first_allowed]
        released.append(match)
    return released, running, complete
