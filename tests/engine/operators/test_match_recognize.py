"""Row patterns of SQL as an operator: matches are shown once they are certain, and late rows are refused."""

from dataclasses import dataclass

import pytest

import millrace as mr
from millrace import patterns, testing


@dataclass
class Price:
    stock: str
    price: float


@dataclass
class Fall:
    stock: str
    low: float


PRICES, FALLS = mr.Topic("input.prices", Price), mr.Topic("analytics.falls", Fall)
FALLING = patterns.match_recognize(
    "A B+", define={"B": "B.price < PREV(B.price)"}, measures={"low": "LAST(B.price)"}, within="1m"
)


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_match_is_shown_when_no_row_can_make_it_longer(on: testing.On) -> None:
    falls = mr.read(PRICES).group_by("stock").match_recognize(FALLING)
    script = testing.Script(mr.Job("falls", falls.write(FALLS)), on=on)
    prices = [(1, 5.0), (3, 3.0), (2, 4.0)]
    script.events(*({"stock": "s", "price": price, "event_time": at * 1000} for at, price in prices))
    script.watermark("10s")
    assert script.panes() == []
    script.restart()
    script.events(
        {"stock": "s", "price": 9.0, "event_time": 12_000}, {"stock": "s", "price": 1.0, "event_time": 4_000}
    )
    script.watermark("20s")
    [fall] = script.panes()
    assert (fall["low"], fall["window_start"], fall["window_end"]) == (3.0, 1_000, 3_001)
    assert [row["price"] for row in script.late()] == [1.0]
