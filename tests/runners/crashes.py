"""Crashes of a run in this process, around the steps in which it stores what it has done."""

from collections.abc import Callable

import pytest

from millrace.runners.commit import Committer
from millrace.runners.state.checkpoint import Checkpoint


def inject_crashes(
    monkeypatch: pytest.MonkeyPatch, step: str, when: str, is_due: Callable[[int], bool]
) -> None:
    """Raises MemoryError `before` or `after` a step, in its n-th calls that are due."""
    owner: type[Checkpoint | Committer] = Committer if step == "commit" else Checkpoint
    real, calls = getattr(owner, step), 0

    def faulty(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        crashes = is_due(calls)
        if crashes and when == "before":
            raise MemoryError("injected")
        result = real(*args, **options)
        if crashes:
            raise MemoryError("injected")
        return result

    monkeypatch.setattr(owner, step, faulty)
