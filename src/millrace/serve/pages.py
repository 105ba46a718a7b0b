"""The built page of the map: files of the package, with their media types and cache headers."""

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
"""Fixed here, because the media types that systems know differ."""


class Pages(StaticFiles):
    """Serves the files. Those under `assets/` have a hash in their names and are cached for ever; others are
    revalidated.
    """

    def __init__(self, *, directory: Path) -> None:
        super().__init__(directory=directory, html=True)

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """The file, or the answer that it has not changed."""
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
    """The folder of the built map; None if it was not built."""
    folder = Path(str(resources.files("millrace.serve") / "static"))
    return folder if (folder / "index.html").is_file() else None
