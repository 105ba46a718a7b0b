"""MATCH_RECOGNIZE of SQL: parsed (`clause.py`), compiled, searched for.
Its expressions need sqlglot, an extra.
"""

from importlib.util import find_spec

from millrace.errors import ComponentMissing


def require_sqlglot() -> None:
    """Raises where sqlglot is missing, with the extra to install."""
    if find_spec("sqlglot") is None:
        raise ComponentMissing(
            "row patterns of SQL need sqlglot, which is not installed; install it with: pip install "
            "'millrace-streams[sql]'"
        )
