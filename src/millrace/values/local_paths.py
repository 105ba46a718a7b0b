"""Refuses URLs where a local folder or file is expected, which would otherwise become a folder named
`s3a:`.
"""

from __future__ import annotations

import re
from pathlib import Path

from millrace.errors import ConfigError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
"""Also matches `s3a:/bucket`, which `Path` makes of `s3a://bucket`."""


def require_local(path: Path | str, purpose: str) -> Path:
    """The path; `ConfigError` if it is a URL. The second argument names its use: "the state folder"."""
    if reason := explain_refusal(path, purpose):
        raise ConfigError(reason)
    return Path(path)


def explain_refusal(path: Path | str, purpose: str) -> str | None:
    """Why the path cannot be used; None if it can."""
    match = _URL.match(str(path))
    if match is None:
        return None
    url = f"{match[1]}://{str(path)[match.end() :]}"
    remedy = (
        f"write {'/' + str(path)[match.end() :]!r}"
        if match[1].lower() == "file"
        else "name a folder of this machine or a mounted one"
    )
    return (
        f"{purpose} {url!r} is a URL, and only local paths can be used there so far; "
        f"{remedy}, such as '/var/lib/millrace'"
    )
