"""A graph that changes: who is connected to how many, and how many triangles there are, in each minute.

A late edge adds its triangles, and takes back the numbers that no longer hold.
"""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import aggregates, watermarks, windows


@dataclass
class Edge:
    """Two nodes are connected."""

    one: str
    other: str


edges = (
    mr.read(mr.Topic("input.edges", Edge), watermark=watermarks.bounded("5s"))
    .filter(pl.col("one") != pl.col("other"))
    .select(a=pl.min_horizontal("one", "other"), b=pl.max_horizontal("one", "other"))
    .window(windows.fixed("1m"), lateness="1m")
)

degrees = mr.Job(
    "degrees",
    edges.select(node=pl.concat_list("a", "b"), neighbour=pl.concat_list("b", "a"))
    .explode("node", "neighbour")
    .group_by("node")
    .aggregate(degree=aggregates.distinct("neighbour"))
    .write(mr.Topic("analytics.degrees", key="node")),
)

each = edges.group_by("a", "b").count()  # every edge once, however often it came
first, second = each.select("a", "b"), each.select(b=pl.col("a"), c=pl.col("b"))
triangles = mr.Job(
    "triangles",
    first.group_by("b")
    .join(second.group_by("b"))  # a–b and b–c
    .group_by("a", "c")
    .join(each.select(a=pl.col("a"), c=pl.col("b")).group_by("a", "c"))  # and a–c
    .with_columns(graph=pl.lit("all"))
    .group_by("graph")
    .count(name="triangles")
    .write(mr.Topic("analytics.triangles", key="graph")),
)

if __name__ == "__main__":
    pairs = [("ann", "bob"), ("bob", "cid"), ("cid", "ann"), ("ann", "bob"), ("cid", "dan")]
    frame = pl.DataFrame(
        {"one": [a for a, _ in pairs], "other": [b for _, b in pairs], "event_time": range(0, 5_000, 1_000)}
    )
    print(mr.replay(degrees, frame).select("node", "degree"))
    print(mr.replay(triangles, frame).select("triangles", "window_start"))
