"""Small wrong changes to the engine, each of which some test must notice.

A change is found by a piece of code that occurs once in its file, however its lines are broken; when the code
moves on, the change must too.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One wrong change: in `file`, `before` becomes `after`."""

    file: str
    before: str
    after: str
    says: str
    """What is wrong with the engine then."""
    equivalent: str = ""
    """Why no test can notice: what users see is the same."""

    def found(self, text: str) -> list[tuple[int, int]]:
        """Where `before` stands in a file: from and to which character."""
        piece, code = "".join(sign for _, sign in _signs(self.before)), list(_signs(text))
        joined = "".join(sign for _, sign in code)
        starts = [at for at in range(len(joined)) if joined.startswith(piece, at)]
        return [(code[at][0], code[at + len(piece) - 1][0] + 1) for at in starts]

    def apply(self, text: str) -> str:
        """The file with the change made."""
        [(start, end)] = self.found(text)
        before, lead, trail = self.before, len(self.before.lstrip()), len(self.before.rstrip())
        if text[:start].endswith(before[: len(before) - lead]):
            start -= len(before) - lead
        gap = before[trail:]
        end += len(gap) if text.startswith(gap, end) else len(text[end:]) - len(text[end:].lstrip())
        return text[:start] + self.after + text[end:]


def _signs(text: str) -> Iterator[tuple[int, str]]:
    """The characters that a formatter does not move: no white space, and no comma before a closing bracket."""
    signs = [(at, sign) for at, sign in enumerate(text) if not sign.isspace()]
    for index, (at, sign) in enumerate(signs):
        closes = index + 1 < len(signs) and signs[index + 1][1] in ")]}"
        if not (sign == "," and closes):
            yield at, sign
