"""Arrivals carry the id of a stop; a service knows where the stop is."""

import asyncio
import json
import os
from dataclasses import dataclass

import millrace as mr

SERVICE = os.environ.get("STOPS", "127.0.0.1:8099")


@dataclass
class Arrival:
    """A vehicle arrives at a stop."""

    vehicle: str
    stop_id: str


@dataclass
class Stop:
    """What the service knows of it."""

    cell: str
    zone: int


@dataclass
class PlacedArrival:
    """An arrival, and where it was."""

    vehicle: str
    stop_id: str
    cell: str | None
    zone: int | None


async def find_stop(stop_id: str) -> Stop | None:
    """Asks over HTTP. None: the stop is unknown."""
    host, _, port = SERVICE.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /{stop_id} HTTP/1.0\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if b" 404 " in head:
        return None
    return Stop(**json.loads(body))


ARRIVALS = mr.Topic("input.arrivals", Arrival, key="vehicle")
PLACED = mr.Topic("analytics.placed-arrivals", PlacedArrival, key="vehicle")

placed = mr.Job(
    "placed-arrivals",
    mr.read(ARRIVALS).lookup(find_stop, "stop_id", ttl="1h", timeout="2s").write(PLACED),
)
