"""Enrichment by asking somebody: a function of keys, called asynchronously, with a cache, limits and a circuit breaker."""

from millrace.lookups.enrich import answered, answering
from millrace.lookups.settings import Lookup, Options, lookup_of

__all__ = ["Lookup", "Options", "answered", "answering", "lookup_of"]
