"""Environments of their own for systems that are not dependencies of millrace."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("MILLRACE_PEERS", Path.home() / ".cache" / "millrace-peers"))
"""Where environments and jars are kept between runs."""


def python_with(*packages: str) -> Path:
    """The interpreter of an environment that has these packages; made on first use."""
    folder = CACHE / "-".join(packages).replace("=", "_").replace("[", "_").replace("]", "")
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        uv = shutil.which("uv") or str(Path(__file__).parents[2] / ".uv" / "bin" / "uv")
        subprocess.run(
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True
        )
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *packages], check=True)
        (folder / "ready").touch()
    return python
