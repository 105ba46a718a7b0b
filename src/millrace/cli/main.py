"""The command line. An error ends in one line and an exit code, never in a traceback.

All imports are inside `main`, where Ctrl-C is handled.
"""

import os
import sys

INTERRUPTED = 130


def main(argv: "list[str] | None" = None) -> int:
    """Runs one command. Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    args = sys.argv[1:] if argv is None else argv
    try:
        return _run([word for word in args if word != "--debug"], debug="--debug" in args)
    except KeyboardInterrupt:
        return _report_interrupt()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        return _report_failure(
            "there is not enough memory; lower run.max_events_per_batch, or use a larger machine"
        )
    except Exception as error:
        if "--debug" in args:
            raise
        return _report_crash(error)


def _run(args: list[str], *, debug: bool) -> int:
    import logging
    import signal

    signal.signal(signal.SIGTERM, _raise_interrupt)
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
        force=True,
    )
    logging.getLogger("millrace").setLevel(logging.DEBUG if debug else logging.INFO)
    from millrace.cli.commands import app
    from millrace.errors import MillraceError

    try:
        app(args, prog_name="millrace")
    except MillraceError as error:
        if debug:
            raise
        return _report_failure(_describe(error))
    except SystemExit as end:
        if end.code == INTERRUPTED:
            return _report_interrupt()
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    return 0


def _describe(error: Exception) -> str:
    """The error's text with the line of the user's program that caused it, if one did."""
    from millrace.values.user_code import locate

    line = locate(error)
    return f"{error} ({line})" if line and line not in str(error) else str(error)


def _raise_interrupt(_number: int, _frame: object) -> None:
    """Treats SIGTERM, which service managers send, as Ctrl-C."""
    raise KeyboardInterrupt


def _report_interrupt() -> int:
    """Prints that the command was stopped, and clears Python's memory of the interruption.

    Python remembers a KeyboardInterrupt that was raised inside `exec`, which every dataclass calls when it is
    defined. Under `python -m` it then kills itself by SIGINT at its end, even where the exception was caught.
    The next `exec` clears that.
    """
    exec("")  # noqa: S102 - an empty program
    sys.stderr.write("stopped\n")
    return INTERRUPTED


def _report_failure(message: str) -> int:
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    sys.stderr.write(f"{red}error:{plain} {message}\n")
    return 1


def _report_crash(error: Exception) -> int:
    """Reports an unexpected exception: one line, and the traceback in a file."""
    message = (str(error).splitlines() or [""])[0][:300]
    if isinstance(error, OSError):  # a wrong path or a failing disk; the system's message names it
        return _report_failure(
            f"{_without_secrets(message)}; check the path and its permissions; --debug shows the traceback"
        )
    from millrace.values.user_code import describe_failure

    if known := _without_secrets(describe_failure(error)):  # a job's own code raised
        kind = type(error).__name__
        return _report_failure(f"{kind}: {_without_secrets(message)}{known}; --debug shows the traceback")
    import tempfile
    import traceback

    text = _without_secrets("".join(traceback.format_exception(error)))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="millrace-", suffix=".trace", delete=False) as file:
            file.write(text)
    except OSError:
        hint = "run it again with --debug to see the traceback"
    else:
        hint = f"the traceback is in {file.name}; please report it with that file"
    return _report_failure(f"unexpected error: {type(error).__name__}: {_without_secrets(message)}; {hint}")


def _without_secrets(text: str) -> str:
    """The text with passwords in URLs hidden, and the values of environment variables whose names look like
    secrets.
    """
    import re

    secret_words = ("PASSWORD", "SECRET", "TOKEN", "KEY")
    secrets = [
        value
        for name, value in os.environ.items()
        if len(value) > 3 and any(word in name.upper() for word in secret_words)
    ]
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "(hidden)")
    return re.sub(r"(\w+://[^\s:/@]+):[^\s@]+@", r"\1:(hidden)@", text)


if __name__ == "__main__":
    sys.exit(main())
