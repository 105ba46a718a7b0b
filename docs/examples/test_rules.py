"""The example of docs/how-to/rules.md does what the page says."""

import json
from pathlib import Path

from pattern_jobs import PAYMENTS
from rules import RULES, alerts

from millrace.testing.script import Script

LINES = [json.loads(line) for line in Path(__file__).with_name("rules.jsonl").read_text().splitlines()]


def paid(amount: float, second: int) -> dict[str, object]:
    """A payment with the one card there is."""
    return {
        "card": "1234",
        "amount": amount,
        "latitude": 60.0,
        "longitude": 25.0,
        "event_time": second * 1000,
    }


def test_rules_are_added_replaced_and_withdrawn_and_the_others_go_on() -> None:
    """Of two rules one is replaced, which drops its partial matches and not those of the other;
    then the other is withdrawn.
    """
    script = Script(alerts)
    script.events(
        *({"event_time": line["at"], "name": line["name"], "pattern": line["pattern"]} for line in LINES),
        topic=RULES,
    )

    def found(seconds: int) -> list[tuple[str, list[float]]]:
        script.watermark(f"{seconds}s")
        return sorted((pane["rule"], pane["amount"]) for pane in script.panes())

    script.events(paid(0.5, 10), paid(20.0, 20), paid(60.0, 30), topic=PAYMENTS)
    assert found(40) == [("card-testing", [0.5, 60.0])]
    script.events(paid(0.5, 90), paid(60.0, 110), topic=PAYMENTS)
    script.restart()
    assert found(150) == [("jump", [0.5, 60.0])], (
        "the new card-testing has not seen the 0.5, and 60 is not above 500"
    )
    script.events(paid(2.0, 160), paid(600.0, 170), topic=PAYMENTS)
    assert found(300) == [("card-testing", [2.0, 600.0]), ("jump", [2.0, 600.0])]
    script.events(paid(2.0, 310), paid(600.0, 320), topic=PAYMENTS)
    assert found(400) == [("card-testing", [2.0, 600.0])]
