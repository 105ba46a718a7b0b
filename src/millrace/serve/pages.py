"""The built map: files of the package, with the right types and as long in caches as they may be."""

import os
from importlib import resources
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_CACHE_FOREVER = "public, max-age=31536000, immutable"
_MEDIA_TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".geojson": "application/geo+json",
    ".map": "application/json",
    ".pbf": "application/x-protobuf",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
"""Said here because what the system knows of types differs from one to the next."""


class Pages(StaticFiles):
    """Files under `assets/` have a hash of their contents in their names, so they never change; all others are asked for anew each time."""

    def __init__(self, *, directory: Path) -> None:
        super().__init__(directory=directory, html=True)

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """A file, or word that it has not changed."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        media_type = _MEDIA_TYPES.get(Path(full_path).suffix)
        if media_type is not None and response.status_code == 200:
            response.headers["content-type"] = (
                f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type
            )
        is_asset = scope["path"].startswith("/assets/")
        response.headers["cache-control"] = _CACHE_FOREVER if is_asset else "no-cache"
        response.headers["x-content-type-options"] = "nosniff"
        return response


def built_pages() -> Path | None:
    """Where the map is, if it was built."""
    folder = Path(str(resources.files("millrace.serve") / "static"))
    return folder if (folder / "index.html").is_file() else None
