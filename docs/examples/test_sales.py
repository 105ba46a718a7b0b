"""Unit tests of the jobs in sales.py. Run: pytest docs/examples"""

from typing import Any

from sales import BESTSELLERS, PRICE_CLASSES, TURNOVERS, job

from millrace import testing

HOUR = 3_600_000


def sale(product: str, buyer: str, price: float, quantity: int, at: int, **more: Any) -> dict[str, Any]:
    """A sale at a minute of the first hour."""
    row = {"product": product, "buyer": buyer, "price": price, "quantity": quantity, "returned": False}
    return {**row, "event_time": at * 60_000, **more}


def market() -> testing.Script:
    """An hour of sales."""
    script = testing.Script(job)
    script.events(
        sale("tea", "ada", 4.0, 3, 1),
        sale("tea", "ada", 4.0, 1, 2),
        sale("tea", "bob", 4.0, 2, 3, returned=True),
        sale("cup", "bob", 12.5, 2, 4),
        sale("mug", "eve", 12.5, 2, 5),
        sale("mug", "ada", 12.5, 2, 6, returned=True),
    )
    script.watermark(HOUR)
    return script


def test_only_rows_for_which_the_condition_holds_count() -> None:
    """A return is neither sold nor turnover, but its buyer is a buyer."""
    panes = market().panes(TURNOVERS)
    assert {pane["product"]: (pane["sold"], pane["turnover"], pane["buyers"]) for pane in panes} == {
        "tea": (2, 16.0, 2),
        "cup": (1, 25.0, 1),
        "mug": (1, 25.0, 2),
    }


def test_rows_are_grouped_by_what_an_expression_makes_of_them() -> None:
    """Prices by tens."""
    panes = market().panes(PRICE_CLASSES)
    assert {pane["tens"]: pane["sales"] for pane in panes} == {0: 3, 1: 3}


def test_a_correction_withdraws_the_rows_that_fall_out_of_the_ranking() -> None:
    """Equal turnovers are ranked by fewer buyers; a late sale moves the tea to the top."""
    script = market()
    first = [(row["rank"], row["product"]) for row in script.panes(BESTSELLERS)]
    assert first == [(1, "cup"), (2, "mug"), (3, "tea")]
    script.events(sale("tea", "eve", 4.0, 9, 7))
    script.watermark(HOUR + 1)
    later = [(row["op"], row["rank"], row["product"]) for row in script.panes(BESTSELLERS)]
    assert sorted(later) == [
        *[("+", 1, "tea"), ("+", 2, "cup"), ("+", 3, "mug")],
        *[("-", 1, "cup"), ("-", 2, "mug"), ("-", 3, "tea")],
    ]
