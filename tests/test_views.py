"""Declarations of views: those that cannot be shown are refused."""

from dataclasses import dataclass

import polars as pl
import pytest

from millrace.errors import DefinitionError
from millrace.topics import Topic
from millrace.transit.topics import CELL_COUNTS, EMERGENCY_STOPS, FLOWS
from millrace.views import View


@dataclass
class Route:
    geocell: int
    to: str
    count: int
    latitude: str
    longitude: float


ROUTES = Topic("analytics.routes", Route)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"key": "cell"},
            "'cell' is not a column of topic 'analytics.vehicle-distribution'; it has geocell, count",
        ),
        ({"values": ("number",)}, "'number' is not a column"),
        ({"values": ()}, "shows no column"),
        ({"name": "a/b"}, "view name 'a/b'"),
        ({"kind": "columns"}, "kind='columns' cannot be drawn; use cells, arcs, points"),
        ({"kind": "points"}, "'latitude' is not a column"),
        ({"topic": FLOWS, "kind": "arcs"}, "put 'to' into values="),
        ({"every": "0s"}, "every='0s' must be longer than zero"),
        ({"exclude": pl.col("speed") > 5}, "exclude= uses column 'speed', which topic"),
        ({"shows": "all"}, "shows='all' is not known; use 'window' or 'newest'"),
        (
            {"topic": EMERGENCY_STOPS, "key": "vehicle_id", "values": ("deceleration",)},
            "'vehicle_id' of topic 'analytics.emergency-stop' is String",
        ),
        (
            {"topic": EMERGENCY_STOPS, "key": "deceleration", "values": ("deceleration",)},
            "is Float64, and an H3 cell is Int64, so nothing would be shown",
        ),
        (
            {"topic": EMERGENCY_STOPS, "kind": "points", "key": "vehicle_id", "values": ("vehicle_id",)},
            "put a number first",
        ),
        (
            {"topic": ROUTES, "kind": "arcs", "values": ("count", "to")},
            "'to' of topic 'analytics.routes' is String, and an H3 cell is Int64",
        ),
        (
            {"topic": ROUTES, "kind": "points", "key": "to"},
            "'latitude' of topic 'analytics.routes' is String, so nothing would be shown",
        ),
    ],
)
def test_a_wrong_view_is_refused(wrong: dict[str, object], message: str) -> None:
    right = {
        "name": "v",
        "topic": CELL_COUNTS,
        "title": "V",
        "window": "30s",
        "every": "5s",
        "key": "geocell",
        "values": ("count",),
    }
    with pytest.raises(DefinitionError) as refused:
        View(**{**right, **wrong})  # type: ignore[arg-type]
    assert message in str(refused.value)
