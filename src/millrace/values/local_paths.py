"""Folders and files of this machine: a URL given in their place is refused, instead of becoming a folder named `s3a:`."""

from __future__ import annotations

import re
from pathlib import Path

from millrace.errors import ConfigError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
"""Also `s3a:/bucket`, which is what a `Path` makes of `s3a://bucket`."""


def local(path: Path | str, what: str) -> Path:
    """The path; `ConfigError` if it is a URL. `what` names the thing that is to be there: "the state folder"."""
    if reason := refusal(path, what):
        raise ConfigError(reason)
    return Path(path)


def refusal(path: Path | str, what: str) -> str | None:
    """Why the path cannot be used; None: it can."""
    found = _URL.match(str(path))
    if found is None:
        return None
    url = f"{found[1]}://{str(path)[found.end() :]}"
    remedy = (
        f"write {'/' + str(path)[found.end() :]!r}"
        if found[1].lower() == "file"
        else "name a folder of this machine or a mounted one"
    )
    return f"{what} {url!r} is a URL, and only local paths can be used there so far; {remedy}, such as '/var/lib/millrace'"
