"""The command line: what goes wrong ends in one line and an exit code, never in a traceback.

Everything is imported inside `main`, where an interruption is expected.
"""

import os
import sys

INTERRUPTED = 130


def main(argv: "list[str] | None" = None) -> int:
    """Runs one command. 0: done, 1: it failed, 2: it was not understood, 130: it was interrupted."""
    words = sys.argv[1:] if argv is None else argv
    try:
        return _run([word for word in words if word != "--debug"], debug="--debug" in words)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(words: list[str], *, debug: bool) -> int:
    import logging
    import signal

    signal.signal(signal.SIGTERM, _interrupt)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr, force=True)
    logging.getLogger("millrace").setLevel(logging.DEBUG if debug else logging.INFO)
    from millrace.commands import app
    from millrace.errors import MillraceError

    try:
        app(words, prog_name="millrace")
    except MillraceError as error:
        if debug:
            raise
        return _failed(str(error))
    except SystemExit as end:
        if end.code == INTERRUPTED:
            return _interrupted()
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    return 0


def _interrupt(_number: int, _frame: object) -> None:
    """A service manager's stop is treated as Ctrl-C."""
    raise KeyboardInterrupt


def _interrupted() -> int:
    sys.stderr.write("stopped\n")
    return INTERRUPTED


def _failed(message: str) -> int:
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    sys.stderr.write(f"{red}error:{plain} {message}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
