"""What the state of an operator depends on, part by part: stored beside the state, and compared when a changed job comes back to it.

The steps before an operator belong to it. A late correction of a first aggregation takes back what it had given to the second; were the key made
otherwise now, it would be taken back from another key, and both would stay wrong.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING

import polars as pl

from millrace import graph
from millrace.aggregates import StdDev, Sum

if TYPE_CHECKING:
    from millrace.engine.plan import Operator

SUMS = 2
"""The form in which sums are kept: 1 had 64 bits."""
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
    return json.dumps(parts, sort_keys=True)


def hashed(operator: Operator) -> str:
    """What was stored before descriptions were: a digest, without the steps."""
    node = operator.node
    text = f"{node.kind} {node.keys} {what(node)} {node.windowing} {operator.over_rows}"
    return blake2b(text.encode(), digest_size=8).hexdigest()


def difference(was: str, operator: Operator) -> str | None:
    """Why state of an operator described as `was` does not fit this one; None if it does."""
    if not was.startswith("{"):
        if was != hashed(operator):
            return "no longer has the keys, windows or aggregates that its state was made with"
        return "has sums of 64 bits in its state, of an older version of millrace" if has_sums(operator.node) else None
    old, new = json.loads(was), json.loads(describe(operator))
    changed = [said for part, said in _PARTS.items() if part != "steps" and old.get(part) != new.get(part)]
    if not {*old.get("steps", [])} <= {*new["steps"]}:
        changed.append(_PARTS["steps"])
    return f"{' and '.join(changed)} than its state was made with" if changed else None


def has_sums(node: graph.Operation) -> bool:
    """Whether sums are kept."""
    return any(isinstance(aggregate, Sum | StdDev) for aggregate in node.aggregates.values())


def what(node: graph.Operation) -> str:
    """What is computed; where rows are kept as they came, as those of both sides of a join are, also their columns."""
    kept = {name: dtype for name in node.aggregates if isinstance(dtype := node.schema[name], pl.List)}
    fields = {name: f" of {dtype.inner}" for name, dtype in kept.items() if isinstance(dtype.inner, pl.Struct)}
    return ", ".join(f"{name}={aggregate}{fields.get(name, '')}" for name, aggregate in node.aggregates.items())
