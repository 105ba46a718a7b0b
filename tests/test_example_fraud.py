"""examples/fraud_rules.py does what it says."""

import importlib.util
import sys
from pathlib import Path

import pytest

from millrace.testing.script import On, Script

PATH = Path(__file__).parents[1] / "examples" / "fraud_rules.py"


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_rule_holds_from_its_own_time_on(on: On) -> None:
    spec = importlib.util.spec_from_file_location("fraud_rules", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["fraud_rules"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    script, hour = Script(module.fraud, on=on), module.HOUR

    def paid(at: float, amount: int, card: str = "a") -> dict[str, object]:
        return {"card": card, "country": "fi", "amount": amount, "event_time": int(at * hour)}

    script.events(
        paid(11.2, 90),
        paid(9.5, 40),
        paid(9.1, 80),
        paid(9.2, 30, "b"),
        paid(11.1, 80),
        paid(8, 500),
        topic=module.PAYMENTS,
    )
    limits = [
        {"country": "fi", "amount": amount, "event_time": at * hour} for at, amount in ((9, 100), (11, 500))
    ]
    script.events(*limits, topic=module.LIMITS)
    script.watermark(24 * hour)
    alerts = [(pane["card"], pane["spent"], pane["limit"], pane["event_time"]) for pane in script.panes()]
    assert alerts == [("a", 120, 100, int(9.5 * hour))]
