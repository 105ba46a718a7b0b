"""Counts results that a view cannot show as they are. They are logged, and listed by `/api/views`."""

import logging
from dataclasses import dataclass

_log = logging.getLogger("millrace.serve")


@dataclass(frozen=True)
class Omission:
    """One cause: the number of results, the last of them, and the remedy."""

    count: int
    example: str
    """The value and the consequence, such as `geocell=5 is not an H3 cell, so it is not shown`."""
    remedy: str

    @property
    def text(self) -> str:
        """The omission as one line."""
        return f"{self.count:,} {'result' if self.count == 1 else 'results'}: {self.example}; {self.remedy}"


class Omissions:
    """The omissions of one view, by cause. One thread adds, others read."""

    def __init__(self, view: str) -> None:
        """Starts without omissions."""
        self._view = view
        self._causes: dict[str, Omission] = {}

    def add(self, cause: str, count: int, example: str, remedy: str) -> None:
        """Counts results. It logs the first ones, and again whenever their number has another digit."""
        if not count:
            return
        before = self._causes[cause].count if cause in self._causes else 0
        omission = Omission(before + count, example, remedy)
        self._causes = {**self._causes, cause: omission}
        if len(str(omission.count)) > len(str(before)) or not before:
            _log.warning("view %s: %s", self._view, omission.text)

    @property
    def counts(self) -> dict[str, int]:
        """The number of results, by cause."""
        return {cause: omission.count for cause, omission in self._causes.items()}

    @property
    def texts(self) -> list[str]:
        """One line per cause."""
        return [omission.text for omission in self._causes.values()]
