"""The output of the demo: on a terminal a moving line below finished ones, otherwise plain lines now and
then.
"""

import contextlib
import time
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

PLAIN_INTERVAL = 10.0
"""Seconds between two plain lines about the same step."""


class Screen(Protocol):
    """The display of the demo."""

    def show_done(self, text: str) -> None:
        """Shows a finished step, which stays."""

    def show_waiting(self, text: str) -> None:
        """Shows the current step, until the next call."""

    def show_figures(self, text: str) -> None:
        """Shows figures, until the next call."""

    def close(self) -> None:
        """Restores the terminal."""


def open_screen(out: TextIO) -> Screen:
    """A display for a terminal or for a file."""
    return TerminalScreen(out) if out.isatty() else PlainScreen(out)


class PlainScreen:
    """Lines, for files and pipes."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._started_at, self._last_line_at = out, time.monotonic(), time.monotonic()

    def show_done(self, text: str) -> None:
        """Writes a line with the seconds since the start."""
        self._write_line(f"{time.monotonic() - self._started_at:5.1f} s  {text}")

    def show_waiting(self, text: str) -> None:
        """Writes a line if the last one is `PLAIN_INTERVAL` ago."""
        if time.monotonic() - self._last_line_at >= PLAIN_INTERVAL:
            self._write_line(f"{time.monotonic() - self._started_at:5.1f} s  waiting: {text}")

    def show_figures(self, text: str) -> None:
        """Writes a line if the last one is `PLAIN_INTERVAL` ago."""
        if time.monotonic() - self._last_line_at >= PLAIN_INTERVAL:
            self._write_line(text)

    def close(self) -> None:
        """Nothing to restore."""

    def _write_line(self, text: str) -> None:
        self._last_line_at = time.monotonic()
        self._out.write(f"{text}\n")
        self._out.flush()


class TerminalScreen:
    """Lines that stay, and below them one that is redrawn. It never takes more than one row of the
    terminal.
    """

    def __init__(self, out: TextIO) -> None:
        self._started_at = time.monotonic()
        self._console = Console(file=out)
        self._spinner: Spinner | None = Spinner("dots")
        self._moving_text = Text("")
        self._live = Live(
            console=self._console,
            get_renderable=self._render_row,
            refresh_per_second=8,
            transient=True,
            redirect_stderr=False,
        )
        self._live.start()

    def show_done(self, text: str) -> None:
        """Prints a line with a mark and the seconds since the start."""
        line = Text.assemble(("✓ ", "green"), text, (f"  {time.monotonic() - self._started_at:.1f} s", "dim"))
        self._console.print(line)

    def show_waiting(self, text: str) -> None:
        """Redraws the moving line, with a spinner."""
        self._spinner = self._spinner or Spinner("dots")
        self._moving_text = Text.assemble(text, (f"  {time.monotonic() - self._started_at:.0f} s", "dim"))

    def show_figures(self, text: str) -> None:
        """Redraws the moving line, without a spinner."""
        self._spinner = None
        self._moving_text = Text(text, style="bold")

    def close(self) -> None:
        """Removes the moving line and shows the cursor again, unless the terminal is gone."""
        with contextlib.suppress(OSError):
            self._live.stop()

    def _render_row(self) -> Text:
        wheel = self._spinner.render(time.monotonic()) if self._spinner else ""
        row = Text.assemble(
            wheel if isinstance(wheel, Text) else "", " " if self._spinner else "", self._moving_text
        )
        row.truncate(max(self._console.width - 1, 1), overflow="ellipsis")
        row.no_wrap = True
        return row
