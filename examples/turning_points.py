"""Where vehicles turn: each position beside the one before it and the one after it, by event time."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import frames, watermarks


@dataclass
class Position:
    """Where a vehicle is on a grid."""

    vehicle: str
    x: int
    y: int


@dataclass
class Turn:
    """A position at which a vehicle leaves in another direction than it came."""

    vehicle: str
    x: int
    y: int
    number: int


POSITIONS = mr.Topic("input.positions", Position, key="vehicle")

came = pl.struct(x=pl.col("x") - pl.col("x_before"), y=pl.col("y") - pl.col("y_before"))
leaves = pl.struct(x=pl.col("x_after") - pl.col("x"), y=pl.col("y_after") - pl.col("y"))
has_neighbours = pl.col("x_before").is_not_null() & pl.col("x_after").is_not_null()

turns = mr.Job(
    "turning-points",
    mr.read(POSITIONS, watermark=watermarks.bounded("2s"))
    .group_by("vehicle")
    .over(
        x_before=frames.lag("x"),
        y_before=frames.lag("y"),
        x_after=frames.lead("x", within="1m"),
        y_after=frames.lead("y", within="1m"),
        number=frames.row_number(),
    )
    .filter(has_neighbours, came != leaves)
    .select("vehicle", "x", "y", "number")
    .write(mr.Topic("analytics.turning-points", Turn, key="vehicle")),
)

if __name__ == "__main__":
    tram = [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2)]
    bus = [(5, 5), (5, 6), (5, 7), (5, 8), (6, 8), (7, 8)]
    positions = pl.DataFrame(
        [
            {"vehicle": vehicle, "x": x, "y": y, "event_time": 1_000 * second, "ingestion_time": 6_000}
            for second in (1, 0, 3, 2, 5, 4)  # neither comes in order
            for vehicle, (x, y) in (("tram 4", tram[second]), ("bus 550", bus[second]))
        ]
    )
    print(mr.replay(turns, positions).select("vehicle", "x", "y", "number").sort("vehicle", "number"))
