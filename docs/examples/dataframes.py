"""A job between two tables of PostgreSQL, or two foreign topics of Kafka, by Spark's own connectors: `python
dataframes.py jdbc|kafka JARS WHERE FOLDER`.
"""

import os
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import millrace as mr
from millrace import watermarks, windows


@dataclass
class Sale:
    """Something is sold."""

    article: str
    quantity: int


@dataclass
class Sold:
    """How many of it in ten seconds."""

    article: str
    quantity: int


SALES = mr.Topic("shop.sales", Sale, key="article", partitions=1)
SOLD = mr.Topic("analytics.sold", Sold, key="article")

sold = mr.Job(
    "sold",
    mr.read(SALES, watermark=watermarks.bounded("1s"))
    .window(windows.fixed("10s"))
    .group_by("article")
    .sum("quantity")
    .write(SOLD),
)


def from_jdbc(spark: SparkSession, url: str) -> DataFrame:
    """The rows of a table."""
    return spark.read.format("jdbc").options(url=url, dbtable="shop", driver="org.postgresql.Driver").load()


def to_jdbc(results: DataFrame, url: str) -> None:
    """The results, row by row, into another."""
    results.write.format("jdbc").options(url=url, dbtable="sold", driver="org.postgresql.Driver").mode(
        "append"
    ).save()


def from_kafka(spark: SparkSession, servers: str) -> DataFrame:
    """Records of JSON, as a stream of rows."""
    records = spark.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": servers}, subscribe="shop", startingOffsets="earliest"
    )
    fields = F.from_json(F.col("value").cast("string"), "article string, quantity bigint, at timestamp")
    return records.load().select(fields.alias("sale")).select("sale.*")


def to_kafka(results: DataFrame, servers: str) -> None:
    """The results as records of JSON."""
    records = results.select(
        F.col("article").alias("key"), F.to_json(F.struct("article", "quantity", "window_end")).alias("value")
    )
    records.write.format("kafka").options(**{"kafka.bootstrap.servers": servers}, topic="sold").save()


def main(kind: str, jars: str, where: str, folder: str) -> None:
    """In, through the job, and out."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers need millrace, too
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    log = f"embedded:{folder}/log"
    if kind == "jdbc":
        mr.from_dataframe(from_jdbc(spark, where), SALES, time="at", log=log)
    else:
        query = mr.from_dataframe(
            from_kafka(spark, where),
            SALES,
            time="at",
            log=log,
            checkpoint=f"{folder}/seen",
            available_now=True,
        )
        query.awaitTermination()
    mr.run(sold, on="local", until_end=True, log_url=log, state_dir=f"{folder}/state")
    results = sold.to_dataframe(spark, log=log).where("op = '+'")
    (to_jdbc if kind == "jdbc" else to_kafka)(results, where)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
