"""What each choice of a watermark costs in delay and gains in completeness: `python -m bench.watermark_choice` writes the table anew.

An hour of a simulated city, whose lateness is that of a real one, is replayed with each choice, and compared with what really happened.
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
"""Results are looked at for twenty minutes, as they are given when events are taken every two seconds; in milliseconds."""
_STOP_TOLERANCE = 2_000
"""How far a stop that was found may be from the true one, in milliseconds: events come once a second."""


@dataclass(frozen=True)
class SimulatedCity:
    """A simulated stretch: its positions in the order of arrival, and the hard stops that really happened."""

    positions: pl.DataFrame
    hard_stops: pl.DataFrame
    until: int
    """Stops after this are not looked at: not all of their events have come."""


@dataclass(frozen=True)
class ChoiceResult:
    """What one choice means."""

    watermark: str
    delay: float
    """Seconds that a window is waited for after its end."""
    behind: float
    """Share of events that come behind the watermark."""
    settled: float
    """Share of results that were never corrected."""
    refused: float
    """Share of events that came too late even for a minute's lateness, for some window."""
    recall: float
    """Share of real hard stops that emergency-stop found."""
    precision: float
    """Share of what it found that was one."""


def simulate_city(*, seconds: int, scale: float, hard_stops: float = 4.0, seed: int = 1) -> SimulatedCity:
    """A stretch of a small city, made with its truth."""
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
    """A row for each choice."""
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
    """In milliseconds; of a learned one, what it comes to when it has seen all of this."""
    if choice.startswith("percentile"):
        lag = (pl.col("ingestion_time") - pl.col("event_time")).clip(lower_bound=0)
        return int(rows.select(lag.quantile(float(choice[11:-1]), "higher")).item())
    from millrace.durations import parse_millis

    return parse_millis(choice)


def _share_behind(rows: pl.DataFrame, delay: int) -> float:
    clock = pl.min_horizontal("event_time", "ingestion_time").cum_max()
    return float(rows.select((pl.col("event_time") < clock - delay).mean()).item())


def _share_settled(shown: pl.DataFrame) -> float:
    """Of the results given on time, how many were still so in the end."""
    key = ["geocell", "window_end"]
    first = shown.filter((pl.col("timing") == "on_time") & (pl.col("op") == "+")).unique(key, keep="first")
    last = panes.latest_panes(shown, ["geocell"])
    kept = first.join(last.select(*key, final_count="count"), on=key, how="left")
    return float(kept.select((pl.col("count") == pl.col("final_count")).fill_null(value=False).mean()).item())


def _count_matched(found: pl.DataFrame, truth: pl.DataFrame) -> tuple[int, int]:
    """How many true stops were found, and how many of those found are true."""
    pairs = truth.with_row_index("true").join(found.with_row_index("found"), on="vehicle_id")
    near = (pl.col("event_time") - pl.col("stopped_at")).abs() <= _STOP_TOLERANCE
    hit = pairs.filter(near)
    return hit["true"].n_unique(), hit["found"].n_unique()


def format_table(rows: Iterator[ChoiceResult]) -> str:
    """As it stands on the page."""
    lines = [
        "| watermark | results come after a window's end | events behind it | results never corrected | refused after a minute | hard stops found | of those found, real |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{r.watermark}` | {r.delay:.1f} s | {r.behind:.1%} | {r.settled:.1%} | {r.refused:.2%} | {r.recall:.1%} | {r.precision:.1%} |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measures, prints the table, and puts it into the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.watermark_choice", description=__doc__)
    parser.add_argument("--seconds", type=int, default=3_600, help="how long a stretch")
    parser.add_argument("--scale", type=float, default=0.06, help="how large a city")
    parser.add_argument(
        "--page", type=Path, default=None, help=f"put the table into this page, such as {PAGE}"
    )
    args = parser.parse_args()
    city = simulate_city(seconds=args.seconds, scale=args.scale)
    table_text = f"{len(city.positions):,} events, {len(city.hard_stops)} hard stops.\n\n{format_table(measure_choices(city))}"
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
