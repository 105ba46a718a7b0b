"""Public transport: what vehicles report, where they are, and the jobs that answer questions about them."""

from millrace.transit.topics import CELL_COUNTS, POSITIONS

__all__ = ["CELL_COUNTS", "POSITIONS"]
