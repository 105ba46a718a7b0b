"""The demo from start to end."""

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
from millrace.devtools.demo.parts import Part, Parts, parts_of
from millrace.devtools.demo.screen import Screen, screen
from millrace.devtools.demo.watch import Watch, ask, hexagons
from millrace.devtools.demo.wishes import Wishes
from millrace.log import open_log
from millrace.runners.signals import stop_signals

LOOK, REFRESH, TIDY = 0.2, 1.0, 60.0
"""Seconds between two looks while starting, between two lines of figures, and between two turns of tidying the log."""


def show(wishes: Wishes, out: TextIO) -> None:
    """Starts everything, says what happens, and ends everything when it is told to: by Ctrl-C, SIGTERM or the terminal's end.

    Then it raises KeyboardInterrupt, when no process is left.
    """
    checks.check_components(wishes)
    with checks.held(wishes), stop_signals() as stopping:
        wishes = checks.free_port(wishes)
        if wishes.fresh:
            checks.begin_anew(wishes)
        with (
            contextlib.closing(open_log(wishes.log_url)) as log,
            contextlib.closing(screen(out)) as shown,
            Parts() as parts,
        ):
            watch = Watch(log, wishes.run, _now())
            shown.done(f"log ready in {_short(wishes)}")
            started = parts_of(wishes)
            parts.start(started)
            _until_the_map_is_there(wishes, watch, parts, started[0], shown, stopping)
            _go_on(watch, parts, shown, stopping)
            with contextlib.suppress(OSError):  # the terminal may be gone
                shown.waiting("ending every process")
    raise KeyboardInterrupt


@dataclass(frozen=True)
class Milestone:
    """Something that happens once."""

    awaited: str
    reached: Callable[[], str | None]
    """What to say of it, as soon as it has happened."""


def _until_the_map_is_there(
    wishes: Wishes, watch: Watch, parts: Parts, job: Part, shown: Screen, stopping: threading.Event
) -> None:
    since = _now()
    ahead = _milestones(wishes, watch, since)
    while ahead and not stopping.wait(LOOK):
        for milestone in list(ahead):
            if (said := milestone.reached()) is not None:
                ahead.remove(milestone)
                shown.done(said)
        for said in parts.revive():
            shown.done(said)
        if ahead:
            words = re.sub(r"^[\d:]+ ", "", "".join(job.last_lines(1)))
            shown.waiting(f"{ahead[0].awaited}" + (f" · {words}" if words else ""))
    if not ahead:
        shown.done(
            f"the map is at {wishes.address}  (Ctrl-C ends the demo; the next start goes on from here)"
        )
        if wishes.browser and out_of_sight() is None:
            _open_browser(wishes.address)


def _milestones(wishes: Wishes, watch: Watch, since: int) -> list[Milestone]:
    where = "on Spark" if wishes.on == "spark" else "in one process"
    starting = "Spark starts" if wishes.on == "spark" else "the jobs start"
    return [
        Milestone("the city starts", _city(watch)),
        Milestone(
            "the server starts", lambda: "the server answers" if ask(wishes.port, "/healthz") else None
        ),
        Milestone(
            starting, lambda: f"{len(JOBS)} jobs run {where}: first batch" if watch.batches() else None
        ),
        Milestone("first window", lambda: f"first results: {watch.results():,}" if watch.results() else None),
        Milestone(
            "the map fills",
            lambda: f"{count:,} hexagons on the map" if (count := hexagons(wishes.port, since)) else None,
        ),
    ]


def _city(watch: Watch) -> Callable[[], str | None]:
    first: list[tuple[float, int]] = []

    def reached() -> str | None:
        events, at = watch.events(), time.monotonic()
        if events and not first:
            first.append((at, events))
        if not first or at - first[0][0] < 1.0:
            return None
        return f"the city runs: {(events - first[0][1]) / (at - first[0][0]):,.0f} events/s"

    return reached


def _go_on(watch: Watch, parts: Parts, shown: Screen, stopping: threading.Event) -> None:
    tidied = -TIDY
    while not stopping.wait(REFRESH):
        for said in parts.revive():
            shown.done(said)
        shown.figures(str(watch.figures(_now())))
        if time.monotonic() - tidied >= TIDY:
            watch.forget_old_events()
            tidied = time.monotonic()


def out_of_sight() -> str | None:
    """Why a browser would be of no use here; None: it would."""
    if not sys.stdout.isatty():
        return "there is no terminal, so probably nobody is watching"
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no display"
    return None


def _open_browser(address: str) -> None:
    """By a process of its own: it must neither write into our terminal nor end with us."""
    quiet = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-m", "webbrowser", address],
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )


def _short(wishes: Wishes) -> str:
    """Relative to where we are, if that is shorter."""
    place = os.path.relpath(wishes.home)
    return place if len(place) < len(str(wishes.home)) else str(wishes.home)


def _now() -> int:
    return time.time_ns() // 1_000_000
