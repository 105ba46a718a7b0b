"""Operators that take rows and no panes: a pane may still be refined,
and what was made of it could not be taken back.
"""

from __future__ import annotations

from millrace import graph
from millrace.errors import DefinitionError


def require_rows(
    source: graph.Node,
    call: str,
    *,
    takes: str = "rows of topics in order",
    remedy: str = "write them to a topic and read that",
) -> None:
    """Refuses panes. `takes`: what the call is for; `remedy`: what to do instead."""
    if any(edge.read is None for edge in graph.edges(graph.Union((source,), source.schema))):
        raise DefinitionError(
            f"{call} takes {takes}, but here come panes of an aggregation, which may "
            f"still be refined; {remedy}"
        )
