"""Online learning: predicts how long the next ride takes, with a model per line as state, and reports drift.

Needs river: pip install river
"""

import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
from river import drift, linear_model, preprocessing

import millrace as mr
from millrace import state, watermarks


@dataclass
class Ride:
    """A ride of a line: distance, hour of the day, and minutes."""

    line: str
    km: float
    hour: int
    minutes: float


@dataclass
class Guess:
    """The prediction made before the ride was known, and whether the line has drifted."""

    line: str
    minutes: float
    expected: float
    drift: bool


class Learning(mr.Processor):
    """Predicts first, then learns. Only state survives between calls, so the model is stored as bytes."""

    outputs: ClassVar = {"minutes": pl.Float64(), "expected": pl.Float64(), "drift": pl.Boolean()}
    learned = state.value(b"")

    def process(self, row: dict[str, Any], ctx: mr.Context) -> None:
        """One ride."""
        if self.learned:
            model, detector = pickle.loads(self.learned)  # noqa: S301 - our own state
        else:
            model, detector = preprocessing.StandardScaler() | linear_model.LinearRegression(), drift.ADWIN()
        features = {"km": row["km"], "rush": float(row["hour"] in (7, 8, 16, 17))}
        expected = model.predict_one(features)
        model.learn_one(features, row["minutes"])
        detector.update(abs(expected - row["minutes"]))
        ctx.emit(minutes=row["minutes"], expected=expected, drift=detector.drift_detected)
        self.learned = pickle.dumps((model, detector))


guesses = mr.Job(
    "guesses",
    mr.read(mr.Topic("input.rides", Ride, key="line"), watermark=watermarks.ascending())
    .group_by("line")
    .process(Learning())
    .write(mr.Topic("analytics.guesses", Guess, key="line")),
)


def rides(count: int) -> pl.DataFrame:
    """Two minutes a kilometre and ten more in the rush hour; after two thirds of them a bridge is closed,
    and all take twice as long.
    """
    made = [(n, 1.0 + n * 7 % 5, n % 24, 2.0 if n > count * 2 // 3 else 1.0) for n in range(count)]
    return pl.DataFrame(
        [
            {
                "line": "4",
                "km": km,
                "hour": h,
                "minutes": f * (2 * km + 10 * (h in (7, 8, 16, 17))),
                "event_time": n * 60_000,
            }
            for n, km, h, f in made
        ]
    )


if __name__ == "__main__":
    panes = mr.replay(guesses, rides(900))
    off = (pl.col("expected") - pl.col("minutes")).abs().mean()
    print(
        "minutes off, first and last before the bridge:",
        *(panes.slice(start, 100).select(off).item() for start in (0, 500)),
    )
    print("drift noticed at ride", panes.with_row_index("ride").filter("drift")["ride"].to_list())
