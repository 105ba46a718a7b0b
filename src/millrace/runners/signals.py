"""Ctrl-C, SIGTERM and a terminal that is closed, as something to ask for between two steps, instead of an
exception anywhere.

The first signal lets the batch at hand finish. The second one ends it: the run goes on from its last complete
batch when it is started again.
"""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

REMIND_AFTER = 10.0
"""Seconds after which the running work is logged."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_log = logging.getLogger("millrace.run")


@contextlib.contextmanager
def stop_signals(describe_work: Callable[[], str] | None = None) -> Iterator[threading.Event]:
    """An event that these signals set; only where this thread may say so, elsewhere it stays unset. `nohup`
    keeps its meaning.

    The second signal raises KeyboardInterrupt, the third one ends the process. `at_work`: what to name when
    the first one has not been obeyed for a while.
    """
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    finished = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the interface of signal handlers
        if stopping.is_set():
            for signal_number in before:
                signal.signal(signal_number, signal.SIG_DFL)
            raise KeyboardInterrupt
        stopping.set()
        if describe_work is not None:
            threading.Thread(target=_remind, args=(describe_work, finished), daemon=True).start()

    numbers = (
        number
        for number in _SIGNALS
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    )
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stopping
    finally:
        finished.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _remind(describe_work: Callable[[], str], finished: threading.Event) -> None:
    if not finished.wait(REMIND_AFTER):
        _log.warning(
            "told to stop %.0f s ago, but %s is still at work on its batch; Ctrl-C (or SIGTERM) once more "
            "ends the batch, and nothing is lost",
            REMIND_AFTER,
            describe_work(),
        )
