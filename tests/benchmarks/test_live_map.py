"""The measurement of the live map measures something."""

import pytest

from bench.live_map import bench

pytestmark = pytest.mark.slow


def test_viewers_are_sent_what_changes() -> None:
    (two,) = bench([2], cells_per_s=100, seconds=1.5, settle=1)
    assert two.tiles_per_tick > 0
    assert two.sent_mb_per_s > 0
    assert 0 < two.to_viewer_ms_p50 <= two.to_viewer_ms_p99
    assert two.cpu_ms_per_tick > 0
