"""A supervised run in a process of its own: `python supervised.py LOG STATE [caught-up] [standby]`.
It prints a line for each batch.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from millrace.config import Settings
    from millrace.runners import BatchReport, run
    from runners.spark.readings import climbs, falls, spreads, totals

    def report(batch: BatchReport) -> None:
        """So that a test can wait for progress."""
        sys.stdout.write(f"batch {batch.counts.get('read', 0)}\n")
        sys.stdout.flush()

    chosen = Settings().with_options(
        log_url=sys.argv[1],
        state_dir=sys.argv[2],
        run_name="test",
        run_max_events_per_batch=150,
        spark_partitions=2,
        spark_standby="standby" in sys.argv,
    )
    run(
        totals(),
        spreads(),
        climbs(),
        falls(),
        on="spark",
        settings=chosen,
        until_caught_up="caught-up" in sys.argv,
        report=report,
    )
