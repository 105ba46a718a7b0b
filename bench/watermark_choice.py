"""The delay and the completeness of each choice of a watermark: `python -m bench.watermark_choice` prints the
table.

It replays an hour of a simulated city, as late as a real one, with each choice, and compares results with the
simulated truth.
"""

import argparse
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from millrace import panes
from millrace.ingest.connectors.simulator.city import City, CityPlan
from millrace.runners.replay import replay, replay_all
from millrace.transit.jobs import emergency_stop, vehicle_distribution
from millrace.transit.topics import POSITIONS

PAGE = Path("docs/how-to/watermark-choice.md")
CHOICES = ("1s", "2s", "5s", "10s", "30s", "1m", "percentile(0.99)")
START = 1_772_431_200_000
"""2026-03-02 08:00 in Helsinki, a Monday."""
_RESULTS_SPAN, _BATCH_SPAN = 1_200_000, 2_000
"""Results of 20 minutes are compared, with a batch every 2 s; in milliseconds."""
_STOP_TOLERANCE = 2_000
"""How far a detected stop may be from the true one, in milliseconds; vehicles report once a second."""


@dataclass(frozen=True)
class SimulatedCity:
    """Positions in the order of arrival, and the true hard stops."""

    positions: pl.DataFrame
    hard_stops: pl.DataFrame
    until: int
    """Later stops are ignored, as not all of their events have arrived."""


@dataclass(frozen=True)
class ChoiceResult:
    """The figures of one choice."""

    watermark: str
    delay: float
    """Seconds from the end of a window to its result."""
    behind: float
    """Share of events that arrive behind the watermark."""
    settled: float
    """Share of results that were never corrected."""
    refused: float
    """Share of events that were late for some window, with a lateness of a minute."""
    recall: float
    """Share of real hard stops that emergency-stop found."""
    precision: float
    """Share of detected stops that are real."""


def simulate_city(*, seconds: int, scale: float, hard_stops: float = 4.0, seed: int = 1) -> SimulatedCity:
    """Simulates a small city, with its truth."""
    with tempfile.TemporaryDirectory() as folder:
        city = City(
            CityPlan(seed=seed, scale=scale, volume="peak", hard_stops=hard_stops),
            start=START,
            truth=Path(folder),
        )
        rows = [
            frame for second in range(60, seconds + 1, 60) for _, frame in city.advance(START + second * 1000)
        ]
        city.close()
        stops = pl.read_parquet(f"{folder}/hard-stops-*.parquet")
    clocked = stops.with_columns(pl.col("braked_at", "stopped_at") + pl.col("clock_ahead"))
    until = START + (seconds - 120) * 1000
    return SimulatedCity(pl.concat(rows), clocked.filter(pl.col("stopped_at") < until), until)


def measure_choices(city: SimulatedCity, choices: tuple[str, ...] = CHOICES) -> Iterator[ChoiceResult]:
    """Yields the figures of each choice."""
    events = {POSITIONS.name: city.positions}
    first = city.positions.filter(pl.col("ingestion_time") < START + _RESULTS_SPAN)
    batch = max(1, len(first) * _BATCH_SPAN // _RESULTS_SPAN)
    for choice in choices:
        delay = _delay_of(city.positions, choice)
        counted = replay_all(
            vehicle_distribution(watermark=choice, lateness="1m"), {POSITIONS.name: first}, batch=batch
        )
        [panes_shown] = counted.outputs.values()
        found = replay(emergency_stop(watermark=choice), events).filter(pl.col("event_time") < city.until)
        hits, real = _count_matched(found, city.hard_stops)
        yield ChoiceResult(
            choice,
            delay / 1000,
            _share_behind(city.positions, delay),
            _share_settled(panes_shown),
            len(counted.late) / len(first),
            hits / max(len(city.hard_stops), 1),
            real / max(len(found), 1),
        )


def _delay_of(rows: pl.DataFrame, choice: str) -> int:
    """The delay in milliseconds; for a percentile, the one of all these rows."""
    if choice.startswith("percentile"):
        lag = (pl.col("ingestion_time") - pl.col("event_time")).clip(lower_bound=0)
        return int(rows.select(lag.quantile(float(choice[11:-1]), "higher")).item())
    from millrace.durations import parse_millis

    return parse_millis(choice)


def _share_behind(rows: pl.DataFrame, delay: int) -> float:
    clock = pl.min_horizontal("event_time", "ingestion_time").cum_max()
    return float(rows.select((pl.col("event_time") < clock - delay).mean()).item())


def _share_settled(shown: pl.DataFrame) -> float:
    """The share of on-time results that were not corrected later."""
    key = ["geocell", "window_end"]
    first = shown.filter((pl.col("timing") == "on_time") & (pl.col("op") == "+")).unique(key, keep="first")
    last = panes.latest_panes(shown, ["geocell"])
    kept = first.join(last.select(*key, final_count="count"), on=key, how="left")
    return float(kept.select((pl.col("count") == pl.col("final_count")).fill_null(value=False).mean()).item())


def _count_matched(found: pl.DataFrame, truth: pl.DataFrame) -> tuple[int, int]:
    """How many true stops were detected, and how many detected stops are true."""
    pairs = truth.with_row_index("true").join(found.with_row_index("found"), on="vehicle_id")
    near = (pl.col("event_time") - pl.col("stopped_at")).abs() <= _STOP_TOLERANCE
    hit = pairs.filter(near)
    return hit["true"].n_unique(), hit["found"].n_unique()


def format_table(rows: Iterator[ChoiceResult]) -> str:
    """The table as Markdown."""
    lines = [
        (
            "| watermark | results come after a window's end | events behind it | results never corrected | "
            "refused after a minute | hard stops found | of those found, real |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        (
            f"| `{r.watermark}` | {r.delay:.1f} s | {r.behind:.1%} | {r.settled:.1%} | {r.refused:.2%} | "
            f"{r.recall:.1%} | {r.precision:.1%} |"
        )
        for r in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Prints the table, and writes it into the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.watermark_choice", description=__doc__)
    parser.add_argument("--seconds", type=int, default=3_600, help="simulated seconds")
    parser.add_argument("--scale", type=float, default=0.06, help="size of the city; 1 is a real one")
    parser.add_argument(
        "--page", type=Path, default=None, help=f"put the table into this page, such as {PAGE}"
    )
    args = parser.parse_args()
    city = simulate_city(seconds=args.seconds, scale=args.scale)
    table_text = (
        f"{len(city.positions):,} events, {len(city.hard_stops)} hard "
        f"stops.\n\n{format_table(measure_choices(city))}"
    )
    print(table_text)
    if args.page is not None:
        text = args.page.read_text(encoding="utf-8")
        args.page.write_text(insert_table(text, table_text), encoding="utf-8")


def insert_table(page: str, table_text: str) -> str:
    """The page with the table in its place."""
    return re.sub(
        r"(<!-- measured -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}{table_text}\n{found[2]}",
        page,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    main()
