"""Jobs on Spark: it schedules, shuffles, checkpoints and recovers; millrace hands it blocks. The only importer of pyspark."""

from millrace.runners.spark.supervise import run

__all__ = ["run"]
