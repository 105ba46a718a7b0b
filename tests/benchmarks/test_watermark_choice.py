"""What a watermark costs and gains, on a few minutes of a small city:
figures that can be trusted in their order.
"""

from functools import cache

import pytest

from bench.watermark_choice import ChoiceResult, format_table, insert_table, measure_choices, simulate_city

pytestmark = pytest.mark.slow


@cache
def rows() -> dict[str, ChoiceResult]:
    return {
        row.watermark: row
        for row in measure_choices(
            simulate_city(seconds=360, scale=0.02, hard_stops=20.0), ("1s", "10s", "percentile(0.99)")
        )
    }


def test_who_waits_longer_leaves_fewer_events_behind_and_corrects_less() -> None:
    short, long = rows()["1s"], rows()["10s"]
    assert (short.delay, long.delay) == (1.0, 10.0)
    assert 0.01 < short.behind < 0.12
    assert long.behind < short.behind
    assert 0.9 < short.settled <= long.settled <= 1


def test_a_learned_delay_leaves_about_as_many_behind_as_it_was_told() -> None:
    assert rows()["percentile(0.99)"].behind < 0.02


def test_most_hard_stops_are_found_and_more_by_who_waits_longer() -> None:
    assert 0.7 < rows()["1s"].recall <= rows()["10s"].recall <= 1
    assert rows()["10s"].precision > 0.9


def test_a_new_table_takes_the_place_of_the_old_one() -> None:
    page = insert_table("before\n<!-- measured -->\n<!-- end -->\nafter", "first")
    assert insert_table(page, "second") == "before\n<!-- measured -->\nsecond\n<!-- end -->\nafter"


def test_the_table_has_a_line_for_each_choice() -> None:
    assert format_table(iter(rows().values())).count("\n") == 1 + len(rows())
