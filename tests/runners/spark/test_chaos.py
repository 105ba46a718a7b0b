"""kill -9 of the whole process tree, supervisor, JVM and workers, at random moments while events flow."""

from pathlib import Path

import pytest

from millrace.measure.chaos import Verdict, chaos

pytestmark = pytest.mark.spark


def test_killed_at_random_moments_nothing_is_missing_doubled_or_wrong(tmp_path: Path) -> None:
    assert chaos(tmp_path, kills=3, vehicles=200) == Verdict(3, 0, 0, 0)
