"""Sequences of events: the words with which patterns are written (`mr.pattern`), and what finds them."""

from millrace.patterns.building import Pattern, pattern
from millrace.patterns.conditions import avg, collect, count, first, last, max, min, previous, sum
from millrace.patterns.declared import Rule

__all__ = ["Pattern", "Rule", "avg", "collect", "count", "first", "last", "max", "min", "pattern", "previous", "sum"]
