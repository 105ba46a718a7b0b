"""Declared patterns: maps and lists, as in YAML or JSON, parsed into a `Pattern`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millrace.errors import DefinitionError
from millrace.patterns.builder import Pattern, pattern
from millrace.patterns.condition_language import parse_condition
from millrace.patterns.conditions import Condition
from millrace.patterns.parts import check_parts

STEP_KEYS = (
    "step",
    "group",
    "link",
    "where",
    "times",
    "inner",
    "optional",
    "greedy",
    "until",
    "gap",
    "loop_gap",
)
LINKS = ("next", "followed_by", "followed_by_any", "not_next", "not_followed_by")
MAX_INTEGER = 10**15
"""The largest number of repetitions, and of milliseconds: 31,000 years."""
SKIPS = ("none", "to_next", "past_last")


@dataclass(frozen=True)
class Rule:
    """A pattern from a topic, as YAML or JSON with the keys `pattern`, `within` and `skip`.
    An empty text withdraws it.
    """

    name: str
    pattern: str


def read_pattern(steps: Any, *, within: Any = None, skip: Any = None) -> Pattern:
    """The pattern in a document; durations are in milliseconds."""
    result = _read_sequence(steps, "pattern")
    if within is not None:
        result = result.within(_read_integer(within, "within", least=1))
    return _apply_skip(result, "none" if skip is None else skip)


def _read_sequence(steps: Any, where: str) -> Pattern:
    if not isinstance(steps, Sequence) or isinstance(steps, str) or not steps:
        raise DefinitionError(f"`{where}: {steps}` is not a list of steps; write - step: NAME for each")
    result: Pattern | None = None
    for part in steps:
        result = _read_part(result, part)
    assert result is not None
    check_parts(result.parts)
    return result


def _read_part(before: Pattern | None, spec: Any) -> Pattern:
    if not isinstance(spec, Mapping) or ("step" in spec) == ("group" in spec):
        raise DefinitionError(
            f"{spec} is not a step; it needs a name (`step: NAME`) or steps (`group: [..]`)"
        )
    for key in spec:
        if key not in STEP_KEYS:
            raise DefinitionError(
                f"unknown key `{key}` in step {spec.get('step', 'group')}; the keys are "
                f"{', '.join(STEP_KEYS)}"
            )
    for key in ("step", "where", "until"):
        if isinstance(spec.get(key), list | dict):
            raise DefinitionError(f"`{key}: {spec[key]}` is not a text; write `{key}: TEXT`")
    step: Any = _read_sequence(spec["group"], "group") if "group" in spec else str(spec["step"])
    where = None if "where" not in spec else parse_condition(_to_text(spec["where"]))
    link = spec.get("link")
    if before is None:
        if link is not None:
            raise DefinitionError(f"`link: {link}` of the first step links it to nothing; leave it out")
        result = pattern(step, where)
    elif link in LINKS:
        result = getattr(before, link)(step, where)
    else:
        raise DefinitionError(
            f"`link: {link}` of {spec.get('step', 'a group')} is unknown; use {', '.join(LINKS)}"
        )
    return _apply_quantifiers(result, spec)


def _apply_quantifiers(pattern: Pattern, spec: Mapping[str, Any]) -> Pattern:
    if "times" in spec:
        low, high = _read_times(spec["times"])
        if (low, high) != (1, 1):
            pattern = pattern.at_least(low) if high is None else pattern.times(low, high)
    inner = spec.get("inner", "relaxed")
    if inner not in ("relaxed", "strict", "any"):
        raise DefinitionError(f"`inner: {inner}` is unknown; use relaxed, strict or any")
    if inner != "relaxed" and pattern.parts[-1].is_repeated:
        pattern = pattern.consecutive() if inner == "strict" else pattern.allow_combinations()
    for word in ("optional", "greedy"):
        if not isinstance(spec.get(word, False), bool):
            raise DefinitionError(f"`{word}: {spec[word]}` is neither true nor false")
        if spec.get(word, False):
            pattern = getattr(pattern, word)()
    if "until" in spec:
        pattern = pattern.until(Condition.from_user(parse_condition(_to_text(spec["until"])), "until"))
    for word in ("gap", "loop_gap"):
        if word in spec:
            pattern = getattr(pattern, word)(_read_integer(spec[word], word, least=1))
    return pattern


def _read_times(value: Any) -> tuple[int, int | None]:
    """The bounds in `3`, `2..4` or `2..`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _read_integer(value, "times", least=1), value
    low, dots, high = str(value).partition("..")
    if not dots or not low.strip().isdigit() or (high.strip() and not high.strip().isdigit()):
        raise DefinitionError(f"`times: {value}` is not a number of repetitions; write 3, 2..4 or 2..")
    return int(low), int(high) if high.strip() else None


def _apply_skip(pattern: Pattern, skip: Any) -> Pattern:
    if isinstance(skip, str) and skip in SKIPS:
        return {
            "none": pattern.skip_none,
            "to_next": pattern.skip_to_next,
            "past_last": pattern.skip_past_last,
        }[skip]()
    if (
        isinstance(skip, Mapping)
        and len({"to_first", "to_last"} & set(skip)) == 1
        and set(skip) <= {"to_first", "to_last", "on_miss"}
    ):
        on_miss = skip.get("on_miss", "nothing")
        if on_miss not in ("nothing", "error"):
            raise DefinitionError(f"`on_miss: {on_miss}` is unknown; use error, or leave it out")
        if "to_first" in skip:
            return pattern.skip_to_first(str(skip["to_first"]), on_miss=on_miss)
        return pattern.skip_to_last(str(skip["to_last"]), on_miss=on_miss)
    raise DefinitionError(
        f"`skip: {skip}` is unknown; use {', '.join(SKIPS)}, {{to_first: STEP}} or {{to_last: STEP}}"
    )


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_integer(value: Any, key: str, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_INTEGER:
        raise DefinitionError(f"`{key}: {value}` is not a whole number from {least} to {MAX_INTEGER}")
    return value
