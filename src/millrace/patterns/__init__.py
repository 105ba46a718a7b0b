"""Sequences of events: the words with which patterns are written (`mr.pattern`), and what finds them."""

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
