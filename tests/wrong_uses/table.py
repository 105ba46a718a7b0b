"""Tables of wrong uses: what is typed behind `$ `, and on the next line the message, in which `…` stands
for any text.
"""

import re
from dataclasses import dataclass
from pathlib import Path

REMEDY = re.compile(
    r"\b(use|write|name|give|add|say|check|choose|correct|restart|leave|rename|raise|mend|define|see|call|move|"
    r"install|remove|convert|read a|group it|must|needs|takes|did you mean|should be|such as|missing|allowed|"
    r"no such|is not one of|is called|it has|they have|there are|it reads|its \w+ are|the sections are|"
    r"nobody does)\b|--debug",
    re.IGNORECASE,
)
"""Words of a sentence that tells what to do, or what there is."""


@dataclass(frozen=True)
class WrongUse:
    """What is typed, and the message."""

    typed: str
    message: str

    def matches(self, printed: str) -> bool:
        """Whether this is the message."""
        return re.fullmatch(".*".join(map(re.escape, self.message.split("…"))), printed) is not None


def read_table(path: Path) -> list[WrongUse]:
    """The rows of a table; lines that begin with `#` are headings."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) % 2 == 0
    assert all(line.startswith("$ ") for line in lines[::2])
    return [WrongUse(typed[2:], message) for typed, message in zip(lines[::2], lines[1::2], strict=True)]
