"""Timelines: drawings of event time against processing time, with events, watermark, windows and panes.

`record` runs a job over bounded events on the local engine, batch by batch. `to_svg` and `to_text` draw the
result.
"""

from millrace.devtools.timeline.record import record
from millrace.devtools.timeline.svg import to_svg
from millrace.devtools.timeline.text import to_text

__all__ = ["record", "to_svg", "to_text"]
