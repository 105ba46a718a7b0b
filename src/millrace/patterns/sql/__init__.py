"""Row patterns of SQL, MATCH_RECOGNIZE: read (`clause.py`), compiled and searched for. Expressions are parsed by sqlglot, an extra."""

from importlib.util import find_spec

from millrace.errors import ComponentMissing


def require_sqlglot() -> None:
    """Says which extra to install where sqlglot is missing."""
    if find_spec("sqlglot") is None:
        raise ComponentMissing(
            "row patterns of SQL need sqlglot, which is not installed; install it with: pip install 'millrace[sql]'"
        )
