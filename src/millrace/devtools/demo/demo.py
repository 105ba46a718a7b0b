"""Runs the demo, from the checks to the end of its processes."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from millrace.devtools.demo import checks
from millrace.devtools.demo.jobs import JOBS
from millrace.devtools.demo.options import DemoOptions
from millrace.devtools.demo.processes import DemoProcess, DemoProcesses, demo_processes
from millrace.devtools.demo.progress import DemoProgress, count_hexagons, fetch_json
from millrace.devtools.demo.screen import Screen, open_screen
from millrace.log import open_log
from millrace.runners.signals import stop_signals

POLL_INTERVAL, FIGURES_INTERVAL, CLEANUP_INTERVAL = 0.2, 1.0, 60.0
"""Seconds between two checks while starting, between two lines of figures, and between two removals of old
events."""


def run_demo(options: DemoOptions, out: TextIO) -> None:
    """Starts all processes, shows progress, and ends them on Ctrl-C, SIGTERM or the end of the terminal.

    When no process is left, it raises KeyboardInterrupt.
    """
    checks.check_components(options)
    with checks.hold_folder(options), stop_signals() as stopping:
        options = checks.choose_port(options)
        if options.fresh:
            checks.reset(options)
        with (
            contextlib.closing(open_log(options.log_url)) as log,
            contextlib.closing(open_screen(out)) as display,
            DemoProcesses() as processes,
        ):
            progress = DemoProgress(log, options.run, _now())
            display.show_done(f"log ready in {_short_home(options)}")
            members = demo_processes(options)
            processes.start(members)
            _await_map(options, progress, processes, members[0], display, stopping)
            _show_figures(progress, processes, display, stopping)
            with contextlib.suppress(OSError):  # the terminal may be gone
                display.show_waiting("ending every process")
    raise KeyboardInterrupt


@dataclass(frozen=True)
class Milestone:
    """An event of the start, which happens once."""

    waiting_for: str
    reached_text: Callable[[], str | None]
    """Returns a line about it, as soon as it has happened."""


def _await_map(
    options: DemoOptions,
    progress: DemoProgress,
    processes: DemoProcesses,
    job: DemoProcess,
    display: Screen,
    stopping: threading.Event,
) -> None:
    since = _now()
    pending = _make_milestones(options, progress, since)
    while pending and not stopping.wait(POLL_INTERVAL):
        for milestone in list(pending):
            if (message := milestone.reached_text()) is not None:
                pending.remove(milestone)
                display.show_done(message)
        for message in processes.restart_killed():
            display.show_done(message)
        if pending:
            last_line = re.sub(r"^[\d:]+ ", "", "".join(job.last_lines(1)))
            display.show_waiting(f"{pending[0].waiting_for}" + (f" · {last_line}" if last_line else ""))
    if not pending:
        display.show_done(
            f"the map is at {options.address}  (Ctrl-C ends the demo; the next start goes on from here)"
        )
        if options.browser and explain_no_browser() is None:
            _open_browser(options.address)


def _make_milestones(options: DemoOptions, progress: DemoProgress, since: int) -> list[Milestone]:
    where = "on Spark" if options.on == "spark" else "in one process"
    starting = "Spark starts" if options.on == "spark" else "the jobs start"
    return [
        Milestone("the city starts", _city_rate(progress)),
        Milestone(
            "the server starts",
            lambda: "the server answers" if fetch_json(options.port, "/healthz") else None,
        ),
        Milestone(
            starting, lambda: f"{len(JOBS)} jobs run {where}: first batch" if progress.batches() else None
        ),
        Milestone(
            "first window", lambda: f"first results: {progress.results():,}" if progress.results() else None
        ),
        Milestone(
            "the map fills",
            lambda: (
                f"{count:,} hexagons on the map" if (count := count_hexagons(options.port, since)) else None
            ),
        ),
    ]


def _city_rate(progress: DemoProgress) -> Callable[[], str | None]:
    first: list[tuple[float, int]] = []

    def reached() -> str | None:
        events, at = progress.events(), time.monotonic()
        if events and not first:
            first.append((at, events))
        if not first or at - first[0][0] < 1.0:
            return None
        return f"the city runs: {(events - first[0][1]) / (at - first[0][0]):,.0f} events/s"

    return reached


def _show_figures(
    progress: DemoProgress, processes: DemoProcesses, display: Screen, stopping: threading.Event
) -> None:
    cleaned_at = -CLEANUP_INTERVAL
    while not stopping.wait(FIGURES_INTERVAL):
        for message in processes.restart_killed():
            display.show_done(message)
        display.show_figures(str(progress.figures(_now())))
        if time.monotonic() - cleaned_at >= CLEANUP_INTERVAL:
            progress.forget_old_events()
            cleaned_at = time.monotonic()


def explain_no_browser() -> str | None:
    """The reason not to open a browser; None to open one."""
    if not sys.stdout.isatty():
        return "there is no terminal, so probably no user"
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no display"
    return None


def _open_browser(address: str) -> None:
    """Opens it from a process of its own, which neither writes to our terminal nor ends with us."""
    quiet = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-m", "webbrowser", address],
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )


def _short_home(options: DemoOptions) -> str:
    """The folder relative to the working folder, if that is shorter."""
    relative = os.path.relpath(options.home)
    return relative if len(relative) < len(str(options.home)) else str(options.home)


def _now() -> int:
    return time.time_ns() // 1_000_000
