"""A local run in a process of its own, whose results are delivered as asked:
`python delivery_child.py LOG STATE DELIVERY...`, a job for each.
"""

import sys

import millrace as mr
from millrace import watermarks, windows
from millrace.panes import Delivery
from millrace.runners.local import run_local
from runners.local_child import READINGS, Total, settings


def topic(place: int) -> mr.Topic:
    return mr.Topic(f"analytics.totals-{place}", Total, key="sensor", partitions=2)


def totals(place: int, delivery: Delivery) -> mr.Job:
    rows = mr.read(READINGS, watermark=watermarks.bounded("1s")).window(windows.fixed("1s"))
    return mr.Job(
        f"totals-{place}", rows.group_by("sensor").sum("value").write(topic(place)), delivery=delivery
    )


if __name__ == "__main__":
    jobs = [totals(place, delivery) for place, delivery in enumerate(sys.argv[3:])]  # type: ignore[arg-type] # they are such words
    run_local(jobs, settings=settings(sys.argv[1], sys.argv[2]), until_caught_up=True)
