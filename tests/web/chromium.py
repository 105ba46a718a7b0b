"""Where Chromium is, and whether there is a page to open in it."""

import os
import shutil
from importlib import resources
from pathlib import Path

FLAGS = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox", "--disable-dev-shm-usage"]
"""WebGL without a graphics card, also as root and where shared memory is small."""

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """MILLRACE_CHROMIUM, or the first on PATH."""
    return os.environ.get("MILLRACE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def missing() -> str | None:
    """Why the map cannot be opened."""
    if chromium() is None:
        return "no Chromium on PATH; install it (Debian: apt-get install chromium) or name one in MILLRACE_CHROMIUM"
    if not Path(str(resources.files("millrace.serve") / "static" / "index.html")).is_file():
        return "the page is not built; run `make web`"
    return None
