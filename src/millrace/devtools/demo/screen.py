"""What the demo says: on a terminal one line that moves under what is done, elsewhere plain lines now and then."""

import contextlib
import time
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

PLAIN_EVERY = 10.0
"""Seconds between two lines about the same thing where there is no terminal."""


class Screen(Protocol):
    """Where the demo is shown."""

    def done(self, text: str) -> None:
        """Something is reached, and stays written."""

    def waiting(self, text: str) -> None:
        """What is being waited for; replaced by the next."""

    def figures(self, text: str) -> None:
        """How it runs; replaced by the next."""

    def close(self) -> None:
        """Leaves the terminal as it should be."""


def screen(out: TextIO) -> Screen:
    """The right one for `out`."""
    return Terminal(out) if out.isatty() else Plain(out)


class Plain:
    """Lines, for files and pipes."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._began, self._said = out, time.monotonic(), time.monotonic()

    def done(self, text: str) -> None:
        """With the seconds since the start."""
        self._line(f"{time.monotonic() - self._began:5.1f} s  {text}")

    def waiting(self, text: str) -> None:
        """Only when nothing else was said for a while."""
        if time.monotonic() - self._said >= PLAIN_EVERY:
            self._line(f"{time.monotonic() - self._began:5.1f} s  waiting: {text}")

    def figures(self, text: str) -> None:
        """Likewise."""
        if time.monotonic() - self._said >= PLAIN_EVERY:
            self._line(text)

    def close(self) -> None:
        """Nothing to tidy."""

    def _line(self, text: str) -> None:
        self._said = time.monotonic()
        self._out.write(f"{text}\n")
        self._out.flush()


class Terminal:
    """Lines that stay, and under them one that is redrawn; it never takes more than one row, however small the terminal."""

    def __init__(self, out: TextIO) -> None:
        self._began = time.monotonic()
        self._console = Console(file=out)
        self._spinner: Spinner | None = Spinner("dots")
        self._now = Text("")
        self._live = Live(
            console=self._console,
            get_renderable=self._row,
            refresh_per_second=8,
            transient=True,
            redirect_stderr=False,
        )
        self._live.start()

    def done(self, text: str) -> None:
        """With a mark and the seconds since the start."""
        line = Text.assemble(("✓ ", "green"), text, (f"  {time.monotonic() - self._began:.1f} s", "dim"))
        self._console.print(line)

    def waiting(self, text: str) -> None:
        """Beside a wheel that turns."""
        self._spinner = self._spinner or Spinner("dots")
        self._now = Text.assemble(text, (f"  {time.monotonic() - self._began:.0f} s", "dim"))

    def figures(self, text: str) -> None:
        """Without the wheel: the figures move."""
        self._spinner = None
        self._now = Text(text, style="bold")

    def close(self) -> None:
        """Removes the moving line and shows the cursor again, unless the terminal is gone."""
        with contextlib.suppress(OSError):
            self._live.stop()

    def _row(self) -> Text:
        wheel = self._spinner.render(time.monotonic()) if self._spinner else ""
        row = Text.assemble(wheel if isinstance(wheel, Text) else "", " " if self._spinner else "", self._now)
        row.truncate(max(self._console.width - 1, 1), overflow="ellipsis")
        row.no_wrap = True
        return row
