"""Lookups: columns fetched by a function of keys, called asynchronously, with a cache,
limits and a circuit breaker.
"""

from millrace.lookups.enrich import add_answers, share_answers
from millrace.lookups.settings import LookupOptions, LookupSpec, make_lookup

__all__ = ["LookupOptions", "LookupSpec", "add_answers", "make_lookup", "share_answers"]
