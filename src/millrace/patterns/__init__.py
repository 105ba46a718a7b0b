"""Event patterns: sequences of steps in the manner of Flink CEP, and MATCH_RECOGNIZE of SQL."""

from millrace.patterns.builder import Pattern, pattern
from millrace.patterns.conditions import avg, collect, count, first, last, max, min, previous, sum
from millrace.patterns.declared import Rule
from millrace.patterns.sql.clause import RowPattern, match_recognize, parse_match_recognize

__all__ = [
    "Pattern",
    "RowPattern",
    "Rule",
    "avg",
    "collect",
    "count",
    "first",
    "last",
    "match_recognize",
    "max",
    "min",
    "parse_match_recognize",
    "pattern",
    "previous",
    "sum",
]


def __dir__() -> list[str]:
    """What completion shows: the vocabulary, without what the module imports."""
    return __all__
