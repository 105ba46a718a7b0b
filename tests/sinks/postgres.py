"""A real PostgreSQL of Debian's, started for tests in a folder of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def programs() -> Path | None:
    """Where its programs are: Debian keeps them apart, by version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def missing() -> str | None:
    """Why none can be started."""
    if programs() is None:
        return "PostgreSQL is not installed; run: apt-get install postgresql"
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        return "PostgreSQL does not run as root, and there is no runuser to become another user"
    return None


@contextmanager
def running(folder: Path, port: int | None = None) -> Iterator[str]:
    """A server that listens on a socket in the folder,
    and on a port of this machine if one is given; its address.
    """
    where = programs()
    assert where is not None
    folder.mkdir(mode=0o700)
    become: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        become = ["runuser", "-u", "postgres", "--"]
    data = folder / "data"
    subprocess.run(
        [*become, where / "initdb", "--pgdata", data, "--username", "millrace", "--no-sync"],
        check=True,
        capture_output=True,
    )
    listens = "-c listen_addresses=''" if port is None else f"-c listen_addresses=127.0.0.1 -c port={port}"
    options = f"{listens} -k {folder} -c fsync=off"
    waiting = ["--wait", "--timeout", "120", "--log", f"{folder / 'log'}", "-o", options]
    start = [*become, f"{where / 'pg_ctl'}", "--pgdata", f"{data}", *waiting, "start"]
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"host={folder} user=millrace dbname=postgres" + ("" if port is None else f" port={port}")
    finally:
        subprocess.run(
            [*become, where / "pg_ctl", "--pgdata", data, "--mode", "immediate", "stop"],
            check=True,
            capture_output=True,
        )
