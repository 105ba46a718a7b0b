"""The event types can be kept: numbers of fields never change, and cells fit their type."""

import h3

from millrace.transit import CELL_COUNTS, POSITIONS
from millrace.transit.events_pb2 import CellCount, VehiclePosition


def test_topics_are_partitioned_by_what_jobs_ask_for() -> None:
    assert (POSITIONS.name, POSITIONS.key, POSITIONS.type) == (
        "input.vehicle-positions",
        "vehicle_id",
        VehiclePosition,
    )
    assert (CELL_COUNTS.name, CELL_COUNTS.key, CELL_COUNTS.type) == (
        "analytics.vehicle-distribution",
        "geocell",
        CellCount,
    )


def test_field_numbers_stay_as_they_were_stored() -> None:
    assert {field.name: field.number for field in VehiclePosition.DESCRIPTOR.fields} == {
        "vehicle_id": 1, "operator": 2, "latitude": 3, "longitude": 4, "heading": 5, "speed": 6,
        "acceleration": 7, "delay": 8,
        "odometer": 9, "doors_open": 10, "route": 11, "direction": 12, "trip_day": 13, "trip_start": 14,
        "stop": 15, "next_stop": 16,
    }  # fmt: skip
    assert {field.name: field.number for field in CellCount.DESCRIPTOR.fields} == {"geocell": 1, "count": 2}


def test_every_cell_fits_a_signed_integer() -> None:
    greatest = max(
        h3.str_to_int(h3.latlng_to_cell(latitude, longitude, 15))
        for latitude in range(-90, 91, 10)
        for longitude in range(-180, 181, 10)
    )
    assert CellCount(geocell=greatest).geocell == greatest < 2**63


def test_what_is_absent_can_be_told_from_zero() -> None:
    assert not VehiclePosition().HasField("speed")
    assert VehiclePosition(speed=0).HasField("speed")
