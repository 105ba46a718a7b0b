"""Ctrl-C, SIGTERM and a terminal that is closed, as something to ask for between two steps, instead of an exception anywhere."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that these signals set; only where this thread may say so, elsewhere it stays unset. `nohup` keeps its meaning."""
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the interface of signal handlers
        stopping.set()

    numbers = (number for number in _SIGNALS if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
