"""Random patterns and short random sequences of events."""

import random
from typing import Any

LINKS = ("next", "followed_by", "followed_by_any")
KINDS = "abcd"
CONDITIONS = (
    *(f"kind == '{kind}'" for kind in KINDS),
    "kind == 'a' or kind == 'b'",
    "kind != 'c'",
    "value > 2",
    "kind == 'b' and value >= first(s0.value)",
    "value > previous(value)",
    "value > last(s0.value)",
    "value + sum(s0.value) < 7 and count(s0) < 3",
)


def random_pattern(chance: random.Random) -> dict[str, Any]:
    """A declared pattern that is valid."""
    names = iter(f"s{number}" for number in range(20))
    steps = _steps(chance, names, chance.choice((1, 2, 2, 3, 3, 4)), top=True)
    document: dict[str, Any] = {"pattern": steps}
    if chance.random() < 0.6 or steps[-1].get("link") == "not_followed_by":
        document["within"] = chance.choice((2, 3, 5, 8))
    positive = [
        step["step"] for step in steps if "step" in step and not step.get("link", "").startswith("not")
    ]
    named = [{"to_first": chance.choice(positive)}, {"to_last": chance.choice(positive)}] if positive else []
    document["skip"] = chance.choice(("none", "none", "to_next", "past_last", *named))
    return document


def _steps(chance: random.Random, names: Any, number: int, *, top: bool) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for place in range(number):
        if top and chance.random() < 0.15 and number > 1:
            step: dict[str, Any] = {"group": _steps(chance, names, chance.choice((1, 2)), top=False)}
        else:
            step = {"step": next(names)}
            if chance.random() < 0.93:
                step["where"] = chance.choice(CONDITIONS)
        if place:
            step["link"] = chance.choice(LINKS)
            if chance.random() < 0.15:
                step["gap"] = chance.choice((1, 2, 4))
        steps.append(_quantify(chance, step))
        before = steps[-1]
        follows = top or place < number - 1
        if follows and not _is_skippable(before) and chance.random() < 0.2:
            steps.append(
                {
                    "step": next(names),
                    "link": chance.choice(("not_next", "not_followed_by")),
                    "where": chance.choice(CONDITIONS),
                }
            )
    if not top:
        steps[0].pop("optional", None)
        if str(steps[0].get("times", "")).startswith("0"):
            steps[0]["times"] = "1.."
    return steps


def random_nested_pattern(chance: random.Random) -> dict[str, Any]:
    """A declared pattern of nested groups, many of them optional, repeated or followed by a negation."""
    names = iter(f"s{number}" for number in range(60))
    document: dict[str, Any] = {
        "pattern": _nested_steps(chance, names, chance.choice((1, 2, 2, 3, 3)), depth=0)
    }
    if chance.random() < 0.6 or document["pattern"][-1].get("link") == "not_followed_by":
        document["within"] = chance.choice((2, 3, 5, 8))
    document["skip"] = chance.choice(("none", "none", "to_next", "past_last"))
    return document


def _nested_steps(chance: random.Random, names: Any, number: int, *, depth: int) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for place in range(number):
        if depth < 3 and chance.random() < 0.3:
            step: dict[str, Any] = {
                "group": _nested_steps(chance, names, chance.choice((1, 2, 2, 3)), depth=depth + 1)
            }
        else:
            step = {
                "step": next(names),
                "where": chance.choice([one for one in CONDITIONS if "s0" not in one or not depth]),
            }
        if place:
            step["link"] = chance.choice(LINKS)
        if chance.random() < 0.25:
            step["optional"] = True
        elif chance.random() < 0.6:
            _quantify(chance, step)
        if depth and not place:
            step.pop("optional", None)
            if str(step.get("times", "")).startswith("0"):
                step["times"] = "1.."
        if "until" in step and "s0" in step["until"]:
            step["until"] = chance.choice(CONDITIONS[:7])
        steps.append(step)
        if (not depth or place < number - 1) and not _is_skippable(step) and chance.random() < 0.45:
            where = chance.choice([one for one in CONDITIONS if "s0" not in one])
            steps.append(
                {"step": next(names), "link": chance.choice(("not_next", "not_followed_by")), "where": where}
            )
    return steps


def _is_skippable(step: dict[str, Any]) -> bool:
    if bool(step.get("optional")) or str(step.get("times", "")).startswith("0"):
        return True
    return "group" in step and all(
        _is_skippable(one) or one.get("link", "").startswith("not") for one in step["group"]
    )


def _quantify(chance: random.Random, step: dict[str, Any]) -> dict[str, Any]:
    if chance.random() < 0.5:
        step["times"] = chance.choice(
            (2, 3, "1..2", "2..3", "1..", "2..", *(("0..", "0..2") if "group" not in step else ()))
        )
        if chance.random() < 0.5:
            step["inner"] = chance.choice(("strict", "any"))
        if "group" not in step and chance.random() < 0.3 and step["times"] not in (2, 3):
            step["greedy"] = True
        if "group" not in step and chance.random() < 0.2:
            step["until"] = chance.choice(CONDITIONS)
        if chance.random() < 0.15:
            step["loop_gap"] = chance.choice((1, 2, 4))
    elif chance.random() < 0.2:
        step["optional"] = True
    return step


def random_events(chance: random.Random) -> list[dict[str, Any]]:
    """A short sequence; times may be equal."""
    time, events = 0, []
    for number in range(chance.randint(1, 7)):
        time += chance.choice((0, 1, 1, 2))
        events.append({"id": number, "t": time, "kind": chance.choice(KINDS), "value": chance.randint(0, 4)})
    return events


def random_regular_pattern(chance: random.Random) -> dict[str, Any]:
    """A regular pattern: it ignores no event, and its conditions look at one event."""
    document = random_pattern(chance)
    for step in [inner for part in document["pattern"] for inner in (part, *part.get("group", ()))]:
        for word in ("gap", "loop_gap"):
            step.pop(word, None)
        if "link" in step:
            step["link"] = "next"
        if "times" in step:
            step["inner"] = "strict"
        for word in ("where", "until"):
            if "(" in step.get(word, "") or "c'" in step.get(word, ""):
                step[word] = chance.choice(CONDITIONS[:5])
    document["skip"] = chance.choice(("none", "to_next", "past_last"))
    return document
