"""Every program in examples/ runs, and says what its text promises."""

import re
import runpy
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr

EXAMPLES = Path(__file__).parents[1] / "examples"
STANDALONE = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "busy_cells.py")
"""All but the one that asks the log of the demo,
which has a test of its own (tests/test_documentation.py).
"""


def load(name: str, *, main: bool = False) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__" if main else name)


@pytest.mark.parametrize("name", STANDALONE)
def test_it_runs_as_a_program(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    load(name.removesuffix(".py"), main=True)
    assert capsys.readouterr().out or "__main__" not in (EXAMPLES / name).read_text(), (
        "those that are more than jobs show something"
    )


def test_words_are_counted() -> None:
    counted = mr.replay(load("words")["words"], EXAMPLES / "words.csv")
    assert counted["count"].sum() == len(pl.read_csv(EXAMPLES / "words.csv"))


def test_the_most_used_hashtags_complete_a_prefix() -> None:
    posts = pl.DataFrame(
        {"text": ["#mill #mill", "#milk", "#mice", "#mint #mill", "nothing"], "event_time": [1, 2, 3, 4, 5]}
    )
    panes = mr.replay(load("hashtags")["completions"], posts).filter(pl.col("window_end") == 10_000)
    [best] = panes.filter(pl.col("prefix") == "mi")["top"].to_list()
    assert best[0] == {"tag": "mill", "count": 3}
    assert len(best) == 3


def test_a_late_click_joins_two_visits() -> None:
    minutes = [0, 40, 20]
    clicks = pl.DataFrame(
        {
            "user": ["ann"] * 3,
            "page": ["home", "help", "shop"],
            "event_time": [m * 60_000 for m in minutes],
            "ingestion_time": [0, 2_400_000, 2_400_000],
        }
    )
    [visit] = mr.replay(load("user_sessions")["visits"], clicks).select("pages", "entry", "exit").rows()
    assert visit == (3, "home", "help")


def test_an_order_has_the_price_of_its_time() -> None:
    orders = pl.DataFrame({"article": ["pen", "pen"], "quantity": [2, 2], "event_time": [4_999, 5_000]})
    prices = pl.DataFrame({"article": ["pen", "pen"], "price": [10, 12], "event_time": [0, 5_000]})
    panes = mr.replay(load("enrichment")["priced"], {"input.orders": orders, "input.prices": prices})
    assert panes["total"].to_list() == [20, 24]


def test_degrees_and_triangles_of_a_graph() -> None:
    graphs = load("graphs")
    pairs = [(a, b) for a in "abcd" for b in "abcd" if a < b] + [("d", "e")]
    frame = pl.DataFrame(
        {"one": [a for a, _ in pairs], "other": [b for _, b in pairs], "event_time": range(len(pairs))}
    )
    assert mr.replay(graphs["triangles"], frame)["triangles"].to_list() == [4], (
        "all four nodes know each other"
    )
    degrees = dict(mr.replay(graphs["degrees"], frame).select("node", "degree").rows())
    assert degrees == {"a": 3, "b": 3, "c": 3, "d": 4, "e": 1}


def test_the_model_learns_and_notices_when_the_world_changes() -> None:
    learning = load("online_learning")
    panes = mr.replay(learning["guesses"], learning["rides"](900)).with_row_index("ride")
    off = (pl.col("expected") - pl.col("minutes")).abs().mean()
    first, later = (panes.slice(start, 100).select(off).item() for start in (0, 500))
    assert later < first / 4
    noticed = panes.filter("drift")["ride"].to_list()
    assert any(600 < place < 800 for place in noticed)


def test_spikes_and_dips_of_query_rates_are_noticed_and_nothing_else() -> None:
    example = load("query_rates")
    rated = mr.replay(example["rates"], example["queries"]()).select("query", "rate", "event_time")
    found = mr.replay(example["anomalies"], rated).filter(pl.col("event_time") < 300_000)
    assert found.select("query", "kind", "event_time").rows() == [
        ("match", "spike", 209_999),
        ("news", "dip", 250_000),
    ]


def test_vehicles_turn_where_they_leave_in_another_direction(capsys: pytest.CaptureFixture[str]) -> None:
    load("turning_points", main=True)
    rows = [re.findall(r"[\w ]+", line) for line in capsys.readouterr().out.splitlines()[6:-1]]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["bus 550", "5", "8", "4"],
        ["tram 4", "2", "0", "3"],
        ["tram 4", "2", "2", "5"],
    ]


def test_the_row_frames_of_the_documentation_answer() -> None:
    jobs = runpy.run_path(str(EXAMPLES.parent / "docs" / "examples" / "frames.py"))
    amounts = [(10, "ann", 50), (12, "bob", 20), (15, "ann", -30), (15, "ann", 5), (700, "ann", 1)]
    payments = pl.DataFrame(
        [{"account": who, "amount": n, "event_time": 1_000 * second} for second, who, n in amounts]
    )
    shown = {
        name: mr.replay(jobs[name], payments).filter(pl.col("account") == "ann").select(*columns).rows()
        for name, columns in {
            "statements": ["amount", "balance", "before"],
            "spending": ["number", "spent", "greatest"],
            "followed": ["amount", "after"],
        }.items()
    }
    assert shown["statements"] == [(50, 50, None), (-30, 20, 50), (5, 25, -30), (1, 26, 5)]
    assert shown["spending"] == [(1, 50, 50), (3, 25, 50), (3, 25, 50), (1, 1, 1)]
    late = pl.DataFrame(
        {
            "account": "ann",
            "amount": [50, -30, 1, 5],
            "event_time": [10_000, 15_000, 90_000, 12_000],
            "ingestion_time": [10_000, 15_000, 90_000, 90_000],
        }
    )
    changes = mr.replay(jobs["corrected"], late, batch=1).select("op", "amount", "balance", "before").rows()
    assert changes[:5] == [
        ("+", 50, 50, None),
        ("+", -30, 20, 50),
        ("+", 5, 55, 50),
        ("-", -30, 20, 50),
        ("+", -30, 25, 5),
    ]
    assert shown["followed"] == [(50, -30), (-30, 5), (5, None), (1, None)]


def test_the_joins_of_the_documentation_answer() -> None:
    joins = runpy.run_path(str(EXAMPLES.parent / "docs" / "examples" / "joins.py"))
    orders = pl.DataFrame({"user": ["ann", "bob"], "item": ["pen", "ink"], "event_time": [10_000, 59_000]})
    payments = pl.DataFrame({"payer": ["ann", "bob"], "amount": [3, 4], "event_time": [12_000, 61_000]})
    customers = pl.DataFrame(
        {"user": ["ann", "ann"], "city": ["Oulu", "Turku"], "gone": [False, False], "event_time": [0, 20_000]}
    )
    both = {"input.orders": orders, "input.payments": payments}
    same = mr.replay(joins["same_minute"], both).select("user", "item", "amount").rows()
    assert sorted(same, key=str) == [("ann", "pen", 3), ("bob", "ink", None), ("bob", None, 4)]
    assert sorted(mr.replay(joins["soon"], both).select("item", "amount").rows()) == [("ink", 4), ("pen", 3)]
    sent = mr.replay(joins["sent"], {"input.orders": orders, "input.customers": customers})
    assert sent.select("user", "city").rows() == [("ann", "Oulu"), ("bob", None)]


def test_the_chains_of_the_documentation_answer_what_their_page_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    docs = EXAMPLES.parent / "docs"
    runpy.run_path(str(docs / "examples" / "chains.py"), run_name="__main__")
    shown = re.findall(r"```text\n(.*?)```", (docs / "concepts" / "chains.md").read_text(), re.DOTALL)
    assert "".join(shown) == capsys.readouterr().out
