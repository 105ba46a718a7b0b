"""AFTER MATCH SKIP of MATCH_RECOGNIZE: the row at which the search for the next match begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from millrace.errors import DefinitionError, PatternFailed
from millrace.patterns.sql.grammar import normalize_identifier
from millrace.patterns.sql.tokens import tokenize


@dataclass(frozen=True)
class AfterMatchSkip:
    """Where the search goes on: past the last row of a match, at the row after its first,
    or at a row of a variable.
    """

    kind: Literal["past_last", "to_next", "to_first", "to_last"] = "past_last"
    variable: str | None = None

    @classmethod
    def parse(cls, text: str) -> AfterMatchSkip:
        """The clause in a text such as `TO FIRST A`, without AFTER MATCH SKIP."""
        tokens = tokenize(text)
        match [word.upper for word in tokens]:
            case ["PAST", "LAST"] | ["PAST", "LAST", "ROW"]:
                return cls()
            case ["TO", "NEXT"] | ["TO", "NEXT", "ROW"]:
                return cls("to_next")
            case ["TO", "FIRST", _]:
                return cls("to_first", normalize_identifier(tokens[2].text))
            case ["TO", "LAST", _]:
                return cls("to_last", normalize_identifier(tokens[2].text))
            case ["TO", _]:
                return cls("to_last", normalize_identifier(tokens[1].text))
        raise DefinitionError(
            f"after match skip {text!r} is unknown; use 'past last', 'to next', 'to first V' or 'to last V'"
        )

    def next_start(
        self, labels: Sequence[int], start: int, variable_sets: Mapping[str, frozenset[int]]
    ) -> int:
        """The row at which the search goes on after a match that begins at `start`.

        `labels` has the variable of each row of the match, by number. An empty match is followed by the row
        after it.
        """
        if not labels or self.kind == "to_next":
            return start + 1
        if self.variable is None:
            return start + len(labels)
        places = [place for place, label in enumerate(labels) if label in variable_sets[self.variable]]
        if not places:
            raise PatternFailed(
                f"AFTER MATCH SKIP failed: pattern variable is not present in match: {self.variable}", "skip"
            )
        target = places[0] if self.kind == "to_first" else places[-1]
        if target == 0:
            raise PatternFailed(
                f"AFTER MATCH SKIP failed: cannot skip to first row of match: it is of {self.variable}",
                "skip",
            )
        return start + target
