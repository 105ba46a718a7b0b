"""What could be in the way of the demo, looked at before anything is started: one line each, with the remedy."""

import contextlib
import importlib.util
import shutil
import socket
from collections.abc import Iterator

from millrace.devtools.demo.wishes import HOST, Wishes
from millrace.errors import ComponentMissing, RunFailed, StateInUse, StateUnwritable
from millrace.runners import java
from millrace.runners.state.folder import hold

_PACKAGES = {"spark": ("pyspark", "pandas"), "local": ()}
_ALWAYS = ("h3ronpy", "starlette", "uvicorn")


def check_components(wishes: Wishes) -> None:
    """Packages, the page and Java."""
    missing = [name for name in (*_ALWAYS, *_PACKAGES[wishes.on]) if importlib.util.find_spec(name) is None]
    if missing:
        raise ComponentMissing(
            f"the demo needs {', '.join(missing)}, not installed here; run: pip install 'millrace[demo]'"
        )
    from millrace.serve.pages import built

    if wishes.browser and built() is None:
        raise ComponentMissing(
            "the page of the map is not built, so there would be nothing to look at; run: make web (or say --no-browser, for the API alone)"
        )
    if wishes.on == "spark":
        try:
            java.find()
        except ComponentMissing as error:
            raise ComponentMissing(f"{error}; or say --on local, which needs no Java") from error


def free_port(wishes: Wishes) -> Wishes:
    """The same wishes with a port that can be had; 0 takes any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wishes.port))
        except OSError as error:
            raise RunFailed(
                f"port {wishes.port} cannot be used for the map ({error.strerror}); stop what uses it, or choose another: --port {other(wishes.port)}"
            ) from error
        return wishes.at_port(probe.getsockname()[1])


def other(port: int) -> int:
    """One to suggest."""
    return port + 1 if 1024 <= port < 65535 else 8080


@contextlib.contextmanager
def held(wishes: Wishes) -> Iterator[None]:
    """The folder, taken by this demo alone."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold(wishes.home, patience=1.0))
        except StateInUse as error:
            raise StateInUse(
                f"a demo is already running in {wishes.folder}: stop that one first, or give this one a --folder and a --port of its own"
            ) from error
        except StateUnwritable as error:
            why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
            raise StateUnwritable(
                f"the demo cannot write to its folder {wishes.home} ({why}); name another: --folder DIR"
            ) from error
        yield


def begin_anew(wishes: Wishes) -> None:
    """Forgets the log and the state, once whoever held them is gone: the JVM of a demo that was killed may take a moment to end."""
    state = wishes.state / wishes.run
    if state.exists():
        with hold(state):
            shutil.rmtree(wishes.log, ignore_errors=True)
            shutil.rmtree(state, ignore_errors=True)
    shutil.rmtree(wishes.log, ignore_errors=True)
