"""What the state of an operator depends on, part by part: stored beside the state, and compared when a changed job comes back to it.

The steps before an operator belong to it. A late correction of a first aggregation takes back what it had given to the second; were the key made
otherwise now, it would be taken back from another key, and both would stay wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import graph
from millrace.aggregates import StdDev, Sum
from millrace.triggers import AtWatermark, Never

if TYPE_CHECKING:
    from millrace.engine.plan import Operator

SUMS_VERSION = 2
"""The form in which sums are kept: 1 had 64 bits."""
_TIMING_PATTERN = re.compile(r", trigger=(.*), lateness=(\d+), accumulation=")
_SLICED_TRIGGERS = {repr(trigger): trigger for trigger in (AtWatermark(), AtWatermark(late=Never()))}
"""The triggers with which windows may be kept as slices."""
_DIFFERENCES = {
    "kind": "is another kind of operator",
    "keys": "is grouped by other keys",
    "aggregates": "has other aggregates",
    "windowing": "has another window, trigger, lateness or output",
    "over": "takes panes instead of rows, or the other way round",
    "sums": "keeps its sums in a newer form",
    "steps": "has other steps (filter, with_columns, select, ...) before it",
}


def describe(operator: Operator) -> str:
    """What the state depends on, as text that can be compared part by part."""
    node = operator.node
    parts: dict[str, object] = {
        "kind": node.kind,
        "keys": list(node.keys),
        "aggregates": aggregates_text(node),
        "windowing": str(node.windowing),
        "over": "rows" if operator.over_rows else "panes",
        "steps": sorted({json.dumps([step.text for step in edge.steps]) for edge in operator.edges}),
    }
    if has_sums(node):
        parts["sums"] = SUMS_VERSION
    parts["exactly"] = _expression_digests(operator)
    return json.dumps(parts, sort_keys=True)


def _expression_digests(operator: Operator) -> dict[str, Any]:
    """What texts of expressions leave out (elements of a long list, a format, an option), as digests that one version of polars can compare."""
    node = operator.node
    own_expressions = [
        node.windowing,
        *([node.pattern, node.select] if isinstance(node, graph.MatchPattern) else []),
    ]
    steps = {_digest([step.exprs for step in edge.steps]) for edge in operator.edges}
    return {"polars": pl.__version__, "windowing": _digest(own_expressions), "steps": sorted(steps)}


def _digest(value: Any) -> str:
    digest = blake2b(digest_size=8)
    for expr in _expressions(value):
        try:
            whole = b"" if "python_udf" in str(expr) else expr.meta.serialize()
        except pl.exceptions.PolarsError:  # a function of Python is known by its name
            whole = b""
        digest.update(blake2b(whole).digest())
    return digest.hexdigest()


def _expressions(value: Any) -> Iterator[pl.Expr]:
    if isinstance(value, pl.Expr):
        yield value
    elif isinstance(value, Mapping):
        yield from _expressions(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _expressions(item)
    elif is_dataclass(value):
        yield from _expressions([getattr(value, field.name) for field in fields(value)])


def legacy_digest(operator: Operator) -> str:
    """What was stored before descriptions were: a digest, without the steps."""
    node = operator.node
    text = f"{node.kind} {node.keys} {aggregates_text(node)} {node.windowing} {operator.over_rows}"
    return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Adaptation:
    """What state must be adapted to, before an operator goes on with it."""

    lateness: int | None = None
    """That of before, where it is longer now."""
    added: tuple[str, ...] = ()
    """Aggregates that windows did not have so far."""
    trigger: str | None = None
    """That of before, where it is another one now."""

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return self.lateness is not None or self.trigger is not None or bool(self.added)


def find_adaptation(stored: str, operator: Operator) -> Adaptation:
    """What is other than in state of an operator described as `was`, and can be made to fit."""
    node = operator.node
    if not stored.startswith("{") or not isinstance(node, graph.Aggregation) or node.windowing.is_ordered:
        return Adaptation()
    stored_parts = json.loads(stored)
    lateness, trigger = _changed_timing(stored_parts["windowing"], node.windowing)
    added = tuple(_added_aggregates(stored_parts["aggregates"], node)) if operator.over_rows else ()
    return Adaptation(lateness, added, trigger)


def _changed_timing(stored: str, now: graph.Windowing) -> tuple[int | None, str | None]:
    """The lateness and the trigger of before, where they are other ones now and state can follow; neither where it cannot."""
    found = _TIMING_PATTERN.search(stored)
    if (
        not found
        or f"{stored[: found.start()]}, trigger={now.trigger!r}, lateness={now.lateness}, accumulation={stored[found.end() :]}"
        != str(now)
    ):
        return None, None
    lateness, trigger = int(found[2]), found[1]
    is_longer, is_other_trigger = lateness < now.lateness, trigger != repr(now.trigger)
    before = replace(now, trigger=_SLICED_TRIGGERS.get(trigger, Never()), lateness=lateness)
    in_cells = before.sliced_window is None and now.sliced_window is None
    if (
        lateness > now.lateness
        or (is_longer and (now.fires_once or before.fires_once))
        or (is_other_trigger and not in_cells)
    ):
        return None, None
    return lateness if is_longer else None, trigger if is_other_trigger else None


def _added_aggregates(stored: str, node: graph.Operation) -> Iterator[str]:
    """The aggregates of a node that are not in a description of before; none where it had others."""
    names: list[str] = []
    for part, name in zip(_aggregate_texts(node), node.aggregates, strict=True):
        if stored == part or stored.startswith(f"{part}, "):
            stored = stored[len(part) + 2 :]
        else:
            names.append(name)
    return iter(names if not stored else ())


def find_difference(stored: str, operator: Operator) -> str | None:
    """Why state of an operator described as `was` does not fit this one; None if it does."""
    if not stored.startswith("{"):
        if stored != legacy_digest(operator):
            return "no longer has the keys, windows or aggregates that its state was made with"
        return (
            "has sums of 64 bits in its state, of an older version of millrace"
            if has_sums(operator.node)
            else None
        )
    old, new, adaptation = (
        json.loads(stored),
        json.loads(describe(operator)),
        find_adaptation(stored, operator),
    )
    if adaptation.lateness is not None or adaptation.trigger is not None:
        old["windowing"] = new["windowing"]
    if adaptation.added:
        old["aggregates"] = new["aggregates"]
        old.setdefault("sums", new.get("sums"))
    changed = [
        message
        for part, message in _DIFFERENCES.items()
        if part != "steps" and old.get(part) != new.get(part)
    ]
    digests = new["exactly"]
    stored_digests = old.get("exactly", digests)
    if stored_digests["polars"] != digests["polars"]:
        stored_digests = digests
    if stored_digests["windowing"] != digests["windowing"] and _DIFFERENCES["windowing"] not in changed:
        changed.append(_DIFFERENCES["windowing"])
    if not ({*old.get("steps", [])} <= {*new["steps"]} and {*stored_digests["steps"]} <= {*digests["steps"]}):
        changed.append(_DIFFERENCES["steps"])
    return f"{' and '.join(changed)} than its state was made with" if changed else None


def has_sums(node: graph.Operation) -> bool:
    """Whether sums are kept."""
    return any(isinstance(aggregate, Sum | StdDev) for aggregate in node.aggregates.values())


def aggregates_text(node: graph.Operation) -> str:
    """What is computed; where rows are kept as they came, as those of both sides of a join are, also their columns."""
    return ", ".join(_aggregate_texts(node))


def _aggregate_texts(node: graph.Operation) -> list[str]:
    list_columns = {
        name: dtype for name in node.aggregates if isinstance(dtype := node.schema[name], pl.List)
    }
    fields = {
        name: f" of {dtype.inner}"
        for name, dtype in list_columns.items()
        if isinstance(dtype.inner, pl.Struct)
    }
    return [f"{name}={aggregate}{fields.get(name, '')}" for name, aggregate in node.aggregates.items()]
