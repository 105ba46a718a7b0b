"""Where Chromium is, and whether there is a page to open in it."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

FLAGS = [
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--no-sandbox",
    "--disable-dev-shm-usage",
]
"""WebGL without a graphics card, also as root and where shared memory is small."""

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """MILLRACE_CHROMIUM, or the first on PATH."""
    return os.environ.get("MILLRACE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def build_module() -> ModuleType:
    """`web/build.py`, which lies outside every package."""
    spec = importlib.util.spec_from_file_location(
        "millrace_web_build", Path(__file__).parents[2] / "web" / "build.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def missing() -> str | None:
    """Why the map cannot be opened."""
    if chromium() is None:
        return (
            "no Chromium on PATH; install it (Debian: apt-get install chromium) or name one in "
            "MILLRACE_CHROMIUM"
        )
    if not build_module().is_fresh():
        return "the page is not built, or of other sources than these; run `make web`"
    return None
