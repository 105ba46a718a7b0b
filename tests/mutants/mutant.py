"""Small wrong changes to the engine, each of which some test must notice.

A change is found by a piece of code that occurs once in its file; when the code moves on, the change must too.
"""

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
