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

SUMS = 2
"""The form in which sums are kept: 1 had 64 bits."""
_WHEN = re.compile(r", trigger=(.*), lateness=(\d+), output=")
_PLAIN = {repr(trigger): trigger for trigger in (AtWatermark(), AtWatermark(late=Never()))}
"""The triggers with which windows may be kept as slices."""
_PARTS = {
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
        "aggregates": what(node),
        "windowing": str(node.windowing),
        "over": "rows" if operator.over_rows else "panes",
        "steps": sorted({json.dumps([step.text for step in edge.steps]) for edge in operator.edges}),
    }
    if has_sums(node):
        parts["sums"] = SUMS
    parts["exactly"] = _exactly(operator)
    return json.dumps(parts, sort_keys=True)


def _exactly(operator: Operator) -> dict[str, Any]:
    """What texts of expressions leave out (elements of a long list, a format, an option), as digests that one version of polars can compare."""
    node = operator.node
    own = [node.windowing, *([node.pattern, node.select] if isinstance(node, graph.Match) else [])]
    steps = {_digest([step.exprs for step in edge.steps]) for edge in operator.edges}
    return {"polars": pl.__version__, "windowing": _digest(own), "steps": sorted(steps)}


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
        for one in value:
            yield from _expressions(one)
    elif is_dataclass(value):
        yield from _expressions([getattr(value, field.name) for field in fields(value)])


def hashed(operator: Operator) -> str:
    """What was stored before descriptions were: a digest, without the steps."""
    node = operator.node
    text = f"{node.kind} {node.keys} {what(node)} {node.windowing} {operator.over_rows}"
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


def adaptation(was: str, operator: Operator) -> Adaptation:
    """What is other than in state of an operator described as `was`, and can be made to fit."""
    node = operator.node
    if not was.startswith("{") or not isinstance(node, graph.Aggregation) or node.windowing.ordered:
        return Adaptation()
    old = json.loads(was)
    lateness, trigger = _when(old["windowing"], node.windowing)
    added = tuple(_added(old["aggregates"], node)) if operator.over_rows else ()
    return Adaptation(lateness, added, trigger)


def _when(was: str, now: graph.Windowing) -> tuple[int | None, str | None]:
    """The lateness and the trigger of before, where they are other ones now and state can follow; neither where it cannot."""
    found = _WHEN.search(was)
    if (
        not found
        or f"{was[: found.start()]}, trigger={now.trigger!r}, lateness={now.lateness}, output={was[found.end() :]}"
        != str(now)
    ):
        return None, None
    lateness, trigger = int(found[2]), found[1]
    longer, other = lateness < now.lateness, trigger != repr(now.trigger)
    before = replace(now, trigger=_PLAIN.get(trigger, Never()), lateness=lateness)
    in_cells = before.sliced is None and now.sliced is None
    if lateness > now.lateness or (longer and (now.once or before.once)) or (other and not in_cells):
        return None, None
    return lateness if longer else None, trigger if other else None


def _added(was: str, node: graph.Operation) -> Iterator[str]:
    """The aggregates of a node that are not in a description of before; none where it had others."""
    names: list[str] = []
    for part, name in zip(_parts(node), node.aggregates, strict=True):
        if was == part or was.startswith(f"{part}, "):
            was = was[len(part) + 2 :]
        else:
            names.append(name)
    return iter(names if not was else ())


def difference(was: str, operator: Operator) -> str | None:
    """Why state of an operator described as `was` does not fit this one; None if it does."""
    if not was.startswith("{"):
        if was != hashed(operator):
            return "no longer has the keys, windows or aggregates that its state was made with"
        return (
            "has sums of 64 bits in its state, of an older version of millrace"
            if has_sums(operator.node)
            else None
        )
    old, new, fitting = json.loads(was), json.loads(describe(operator)), adaptation(was, operator)
    if fitting.lateness is not None or fitting.trigger is not None:
        old["windowing"] = new["windowing"]
    if fitting.added:
        old["aggregates"] = new["aggregates"]
        old.setdefault("sums", new.get("sums"))
    changed = [said for part, said in _PARTS.items() if part != "steps" and old.get(part) != new.get(part)]
    exactly = new["exactly"]
    before = old.get("exactly", exactly)
    if before["polars"] != exactly["polars"]:
        before = exactly
    if before["windowing"] != exactly["windowing"] and _PARTS["windowing"] not in changed:
        changed.append(_PARTS["windowing"])
    if not ({*old.get("steps", [])} <= {*new["steps"]} and {*before["steps"]} <= {*exactly["steps"]}):
        changed.append(_PARTS["steps"])
    return f"{' and '.join(changed)} than its state was made with" if changed else None


def has_sums(node: graph.Operation) -> bool:
    """Whether sums are kept."""
    return any(isinstance(aggregate, Sum | StdDev) for aggregate in node.aggregates.values())


def what(node: graph.Operation) -> str:
    """What is computed; where rows are kept as they came, as those of both sides of a join are, also their columns."""
    return ", ".join(_parts(node))


def _parts(node: graph.Operation) -> list[str]:
    kept = {name: dtype for name in node.aggregates if isinstance(dtype := node.schema[name], pl.List)}
    fields = {
        name: f" of {dtype.inner}" for name, dtype in kept.items() if isinstance(dtype.inner, pl.Struct)
    }
    return [f"{name}={aggregate}{fields.get(name, '')}" for name, aggregate in node.aggregates.items()]
