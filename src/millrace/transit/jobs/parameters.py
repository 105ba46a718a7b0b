"""Parameters that the jobs of public transport share: the watermark and the trigger."""

import re

from millrace import triggers, watermarks
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.triggers import Trigger
from millrace.watermarks import Watermark

_PERCENTILE = re.compile(r"percentile\((0?\.\d+|0|1(?:\.0*)?)\)")


def watermark_from(watermark: Duration, idle: Duration | None) -> Watermark:
    """`"1s"`: a second behind the newest event; `"percentile(0.99)"`:
    as far as 99 of 100 events need, learned from those seen.
    """
    if isinstance(watermark, str) and (percentile := _PERCENTILE.fullmatch(watermark.replace(" ", ""))):
        return watermarks.percentile(float(percentile[1]), idle=idle)
    try:
        return watermarks.bounded(watermark, idle=idle)
    except DefinitionError as error:
        raise DefinitionError(
            f"watermark={watermark!r} is not a delay; write '1s', or 'percentile(0.99)' "
            "for one that is learned"
        ) from error


def trigger_from(early: Duration | None) -> Trigger:
    """Fires when the window is complete and, with `early`, that often before;
    late events correct earlier results.
    """
    return triggers.at_watermark(early=None if early is None else triggers.every(early))
