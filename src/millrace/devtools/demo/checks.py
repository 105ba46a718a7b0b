"""Checks before the demo starts: each failure is one line with its remedy."""

import contextlib
import importlib.util
import shutil
import socket
from collections.abc import Iterator

from millrace.devtools.demo.options import HOST, DemoOptions
from millrace.errors import ComponentMissing, RunFailed, StateInUse, StateUnwritable
from millrace.runners import java
from millrace.runners.state.folder import lock_folder

_RUNNER_PACKAGES = {"spark": ("pyspark", "pandas"), "local": ()}
_COMMON_PACKAGES = ("h3ronpy", "starlette", "uvicorn")


def check_components(options: DemoOptions) -> None:
    """Refuses a machine without the packages, the built page or Java."""
    missing = [
        name
        for name in (*_COMMON_PACKAGES, *_RUNNER_PACKAGES[options.on])
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise ComponentMissing(
            f"the demo needs {', '.join(missing)}, not installed here; run: "
            "pip install 'millrace-streams[demo]'"
        )
    from millrace.serve.pages import built_pages

    if options.browser and built_pages() is None:
        raise ComponentMissing(
            "the page of the map is not built, so there would be nothing to look at; run: make web (or use "
            "--no-browser, for the API alone)"
        )
    if options.on == "spark":
        try:
            java.find()
        except ComponentMissing as error:
            raise ComponentMissing(f"{error}; or use --on local, which needs no Java") from error


def choose_port(options: DemoOptions) -> DemoOptions:
    """The options with a port that is free; refuses one that is not."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, options.port))
        except OSError as error:
            raise RunFailed(
                f"port {options.port} cannot be used for the map ({error.strerror}); stop what uses it, or "
                f"choose another: --port {suggest_port(options.port)}"
            ) from error
        return options.with_port(probe.getsockname()[1])


def suggest_port(port: int) -> int:
    """Another port, for an error message."""
    return port + 1 if 1024 <= port < 65535 else 8080


@contextlib.contextmanager
def hold_folder(options: DemoOptions) -> Iterator[None]:
    """Locks the folder for this demo."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(options.home, timeout=1.0))
        except StateInUse as error:
            raise StateInUse(
                f"a demo is already running in {options.folder}: stop that one first, or give this one a "
                "--folder and a --port of its own"
            ) from error
        except StateUnwritable as error:
            reason = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
            raise StateUnwritable(
                f"the demo cannot write to its folder {options.home} ({reason}); name another: --folder DIR"
            ) from error
        yield


def reset(options: DemoOptions) -> None:
    """Deletes log and state, as soon as no process holds them: the JVM of a killed demo may take a moment to
    end.
    """
    state = options.state / options.run
    if state.exists():
        with lock_folder(state):
            shutil.rmtree(options.log, ignore_errors=True)
            shutil.rmtree(state, ignore_errors=True)
    shutil.rmtree(options.log, ignore_errors=True)
