"""The live map: results → views → browsers."""

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.log import LogAddress
    from millrace.views import View

__all__ = ["serve"]

_REQUIRED = ("h3ronpy", "prometheus_client", "starlette", "uvicorn", "websockets")


def serve(log: "LogAddress", views: "Sequence[View]", *, host: str = "127.0.0.1", port: int = 8080) -> None:
    """Serves views of the log at `log`, which need not exist yet, until interrupted by KeyboardInterrupt."""
    if missing := [name for name in _REQUIRED if importlib.util.find_spec(name) is None]:
        from millrace.errors import ComponentMissing

        raise ComponentMissing(
            f"serving needs {', '.join(missing)}, not installed here; run: "
            "pip install 'millrace-streams[serve]'"
        )
    from millrace.serve.server import serve as run

    run(log, views, host=host, port=port)
