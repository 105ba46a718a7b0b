"""The declarative form of a pattern, plain maps and lists as in YAML or JSON, read into the builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millrace.errors import DefinitionError
from millrace.patterns.builder import Pattern, pattern
from millrace.patterns.conditions import Condition
from millrace.patterns.expressions import parse
from millrace.patterns.parts import check

KEYS = ("step", "group", "link", "where", "times", "inner", "optional", "greedy", "until", "gap", "loop_gap")
LINKS = ("next", "followed_by", "followed_by_any", "not_next", "not_followed_by")
MOST_WHOLE = 10**15
"""The largest number of times, and of milliseconds: 31,000 years."""
SKIPS = ("none", "to_next", "past_last")


@dataclass(frozen=True)
class Rule:
    """A pattern that comes from a topic: its name, and what it says as YAML or JSON (`pattern`, `within`, `skip`; empty: it is withdrawn)."""

    name: str
    pattern: str


def read(steps: Any, *, within: Any = None, skip: Any = None) -> Pattern:
    """The pattern that a document says."""
    made = _sequence(steps, "pattern")
    if within is not None:
        made = made.within(_whole(within, "within", least=1))
    return _skip(made, "none" if skip is None else skip)


def _sequence(said: Any, where: str) -> Pattern:
    if not isinstance(said, Sequence) or isinstance(said, str) or not said:
        raise DefinitionError(f"`{where}: {said}` is no list of steps; write - step: NAME for each")
    made: Pattern | None = None
    for part in said:
        made = _part(made, part)
    assert made is not None
    check(made.parts)
    return made


def _part(before: Pattern | None, said: Any) -> Pattern:
    if not isinstance(said, Mapping) or ("step" in said) == ("group" in said):
        raise DefinitionError(f"{said} is no step; it needs a name (`step: NAME`) or steps (`group: [..]`)")
    for key in said:
        if key not in KEYS:
            raise DefinitionError(
                f"unknown key `{key}` in step {said.get('step', 'group')}; there are {', '.join(KEYS)}"
            )
    for key in ("step", "where", "until"):
        if isinstance(said.get(key), list | dict):
            raise DefinitionError(f"`{key}: {said[key]}` is not a text; write `{key}: TEXT`")
    what: Any = _sequence(said["group"], "group") if "group" in said else str(said["step"])
    where = None if "where" not in said else parse(_text(said["where"]))
    link = said.get("link")
    if before is None:
        if link is not None:
            raise DefinitionError(f"`link: {link}` of the first step links it to nothing; leave it out")
        made = pattern(what, where)
    elif link in LINKS:
        made = getattr(before, link)(what, where)
    else:
        raise DefinitionError(
            f"`link: {link}` of {said.get('step', 'a group')} is unknown; use {', '.join(LINKS)}"
        )
    return _quantified(made, said)


def _quantified(made: Pattern, said: Mapping[str, Any]) -> Pattern:
    if "times" in said:
        low, high = _times(said["times"])
        if (low, high) != (1, 1):
            made = made.at_least(low) if high is None else made.times(low, high)
    inner = said.get("inner", "relaxed")
    if inner not in ("relaxed", "strict", "any"):
        raise DefinitionError(f"`inner: {inner}` is unknown; use relaxed, strict or any")
    if inner != "relaxed" and made.parts[-1].repeated:
        made = made.consecutive() if inner == "strict" else made.allow_combinations()
    for word in ("optional", "greedy"):
        if not isinstance(said.get(word, False), bool):
            raise DefinitionError(f"`{word}: {said[word]}` is neither true nor false")
        if said.get(word, False):
            made = getattr(made, word)()
    if "until" in said:
        made = made.until(Condition.of(parse(_text(said["until"])), "until"))
    for word in ("gap", "loop_gap"):
        if word in said:
            made = getattr(made, word)(_whole(said[word], word, least=1))
    return made


def _times(said: Any) -> tuple[int, int | None]:
    """`3`, `2..4` or `2..`."""
    if isinstance(said, int) and not isinstance(said, bool):
        return _whole(said, "times", least=1), said
    low, dots, high = str(said).partition("..")
    if not dots or not low.strip().isdigit() or (high.strip() and not high.strip().isdigit()):
        raise DefinitionError(f"`times: {said}` is no number of times; write 3, 2..4 or 2..")
    return int(low), int(high) if high.strip() else None


def _skip(made: Pattern, said: Any) -> Pattern:
    if isinstance(said, str) and said in SKIPS:
        return {"none": made.skip_none, "to_next": made.skip_to_next, "past_last": made.skip_past_last}[
            said
        ]()
    if (
        isinstance(said, Mapping)
        and len({"to_first", "to_last"} & set(said)) == 1
        and set(said) <= {"to_first", "to_last", "on_miss"}
    ):
        on_miss = said.get("on_miss", "nothing")
        if on_miss not in ("nothing", "error"):
            raise DefinitionError(f"`on_miss: {on_miss}` is unknown; use error, or leave it out")
        if "to_first" in said:
            return made.skip_to_first(str(said["to_first"]), on_miss=on_miss)
        return made.skip_to_last(str(said["to_last"]), on_miss=on_miss)
    raise DefinitionError(
        f"`skip: {said}` is unknown; use {', '.join(SKIPS)}, {{to_first: STEP}} or {{to_last: STEP}}"
    )


def _text(said: Any) -> str:
    return str(said).lower() if isinstance(said, bool) else str(said)


def _whole(said: Any, key: str, *, least: int) -> int:
    if isinstance(said, bool) or not isinstance(said, int) or not least <= said <= MOST_WHOLE:
        raise DefinitionError(f"`{key}: {said}` is not a whole number from {least} to {MOST_WHOLE}")
    return said
