"""What the demo says: on a terminal one line that moves under what is done, elsewhere plain lines now and then."""

import contextlib
import time
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

PLAIN_INTERVAL = 10.0
"""Seconds between two lines about the same thing where there is no terminal."""


class Screen(Protocol):
    """Where the demo is shown."""

    def show_done(self, text: str) -> None:
        """Something is reached, and stays written."""

    def show_waiting(self, text: str) -> None:
        """What is being waited for; replaced by the next."""

    def show_figures(self, text: str) -> None:
        """How it runs; replaced by the next."""

    def close(self) -> None:
        """Leaves the terminal as it should be."""


def open_screen(out: TextIO) -> Screen:
    """The right one for `out`."""
    return TerminalScreen(out) if out.isatty() else PlainScreen(out)


class PlainScreen:
    """Lines, for files and pipes."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._started_at, self._last_line_at = out, time.monotonic(), time.monotonic()

    def show_done(self, text: str) -> None:
        """With the seconds since the start."""
        self._write_line(f"{time.monotonic() - self._started_at:5.1f} s  {text}")

    def show_waiting(self, text: str) -> None:
        """Only when nothing else was said for a while."""
        if time.monotonic() - self._last_line_at >= PLAIN_INTERVAL:
            self._write_line(f"{time.monotonic() - self._started_at:5.1f} s  waiting: {text}")

    def show_figures(self, text: str) -> None:
        """Likewise."""
        if time.monotonic() - self._last_line_at >= PLAIN_INTERVAL:
            self._write_line(text)

    def close(self) -> None:
        """Nothing to tidy."""

    def _write_line(self, text: str) -> None:
        self._last_line_at = time.monotonic()
        self._out.write(f"{text}\n")
        self._out.flush()


class TerminalScreen:
    """Lines that stay, and under them one that is redrawn; it never takes more than one row, however small the terminal."""

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
        """With a mark and the seconds since the start."""
        line = Text.assemble(("✓ ", "green"), text, (f"  {time.monotonic() - self._started_at:.1f} s", "dim"))
        self._console.print(line)

    def show_waiting(self, text: str) -> None:
        """Beside a wheel that turns."""
        self._spinner = self._spinner or Spinner("dots")
        self._moving_text = Text.assemble(text, (f"  {time.monotonic() - self._started_at:.0f} s", "dim"))

    def show_figures(self, text: str) -> None:
        """Without the wheel: the figures move."""
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
