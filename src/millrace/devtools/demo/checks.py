"""What could be in the way of the demo, looked at before anything is started: one line each, with the remedy."""

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
    """Packages, the page and Java."""
    missing = [
        name
        for name in (*_COMMON_PACKAGES, *_RUNNER_PACKAGES[options.on])
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise ComponentMissing(
            f"the demo needs {', '.join(missing)}, not installed here; run: pip install 'millrace[demo]'"
        )
    from millrace.serve.pages import built_pages

    if options.browser and built_pages() is None:
        raise ComponentMissing(
            "the page of the map is not built, so there would be nothing to look at; run: make web (or say --no-browser, for the API alone)"
        )
    if options.on == "spark":
        try:
            java.find()
        except ComponentMissing as error:
            raise ComponentMissing(f"{error}; or say --on local, which needs no Java") from error


def choose_port(options: DemoOptions) -> DemoOptions:
    """The options with a port that is free; refuses one that is not."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, options.port))
        except OSError as error:
            raise RunFailed(
                f"port {options.port} cannot be used for the map ({error.strerror}); stop what uses it, or choose another: --port {suggest_port(options.port)}"
            ) from error
        return options.with_port(probe.getsockname()[1])


def suggest_port(port: int) -> int:
    """One to suggest."""
    return port + 1 if 1024 <= port < 65535 else 8080


@contextlib.contextmanager
def hold_folder(options: DemoOptions) -> Iterator[None]:
    """The folder, taken by this demo alone."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(options.home, timeout=1.0))
        except StateInUse as error:
            raise StateInUse(
                f"a demo is already running in {options.folder}: stop that one first, or give this one a --folder and a --port of its own"
            ) from error
        except StateUnwritable as error:
            reason = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
            raise StateUnwritable(
                f"the demo cannot write to its folder {options.home} ({reason}); name another: --folder DIR"
            ) from error
        yield


def reset(options: DemoOptions) -> None:
    """Forgets the log and the state, once whoever held them is gone: the JVM of a demo that was killed may take a moment to end."""
    state = options.state / options.run
    if state.exists():
        with lock_folder(state):
            shutil.rmtree(options.log, ignore_errors=True)
            shutil.rmtree(state, ignore_errors=True)
    shutil.rmtree(options.log, ignore_errors=True)
