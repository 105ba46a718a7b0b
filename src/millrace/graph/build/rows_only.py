"""Operators that take rows and no changelog: what was made of a row that is taken back later could not be
taken back.
"""

from __future__ import annotations

from millrace import graph
from millrace.errors import DefinitionError


def require_rows(source: graph.Node, call: str, *, takes: str = "rows in order") -> None:
    """Refuses a changelog. `takes`: what the call is for."""
    changelog = next((edge for edge in graph.edges(_as_input(source)) if not edge.is_append_only), None)
    if changelog is None:
        return
    assert isinstance(changelog.origin, graph.Operation)
    raise DefinitionError(
        f"{call} takes {takes}, but the results of {changelog.origin.describe().title} may still be "
        "refined, and what was made of them could not be taken back; say .final() before it, for the values "
        "that hold in the end"
    )


def _as_input(source: graph.Node) -> graph.Node:
    return graph.Union((source,), source.schema)
