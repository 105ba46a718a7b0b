"""Kafka in, PostgreSQL and Kafka out, by Spark's own connectors: `python dataframes.py JARS KAFKA JDBC FOLDER`."""

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


SALES = mr.Topic("shop.sales", Sale, key="article")
SOLD = mr.Topic("analytics.sold", Sold, key="article")

sold = mr.Job(
    "sold",
    mr.read(SALES, watermark=watermarks.bounded("1s")).window(windows.fixed("10s")).by("article").sum("quantity").write(SOLD),
)


def from_kafka(spark: SparkSession, servers: str) -> DataFrame:
    """Records of JSON that others write, as a stream of rows."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "shop")
        .option("startingOffsets", "earliest")
    )
    fields = F.from_json(F.col("value").cast("string"), "article string, quantity bigint, at timestamp")
    return records.load().select(fields.alias("sale")).select("sale.*")


def to_jdbc(results: DataFrame, url: str) -> None:
    """The results, row by row, into a table."""
    results.write.format("jdbc").options(url=url, dbtable="sold", driver="org.postgresql.Driver").mode("append").save()


def to_kafka(results: DataFrame, servers: str) -> None:
    """The results as records of JSON."""
    records = results.select(F.col("article").alias("key"), F.to_json(F.struct("article", "quantity", "window_end")).alias("value"))
    records.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "sold").save()


def main(jars: str, servers: str, jdbc: str, folder: str) -> None:
    """Each end once."""
    spark = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false").getOrCreate()
    log = f"embedded:{folder}/log"
    query = mr.from_dataframe(from_kafka(spark, servers), SALES, time="at", log=log, checkpoint=f"{folder}/checkpoint", available_now=True)
    query.awaitTermination()
    mr.run(sold, on="local", until_caught_up=True, log_url=log, state_dir=f"{folder}/state")
    results = mr.to_dataframe(sold, spark, log=log).where("op = '+'")
    to_jdbc(results, jdbc)
    to_kafka(results, servers)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
