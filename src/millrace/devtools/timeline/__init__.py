"""What happened in a run, drawn: event time against processing time, with events, watermark, windows and panes.

`record` runs a job over events that are all there, moment by moment, on the local engine; `to_svg` and `to_text` draw what it saw.
"""

from millrace.devtools.timeline.record import record
from millrace.devtools.timeline.svg import to_svg
from millrace.devtools.timeline.text import to_text

__all__ = ["record", "to_svg", "to_text"]
