"""Topics that others write, in each of the forms that are read."""

import json
from dataclasses import dataclass

import millrace as mr


@dataclass
class Bid:
    """A bid, as the auction house writes it."""

    item: str
    price: float
    at: int


SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Bid",
        "fields": [
            {"name": "item", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)

PROTOBUF = mr.Topic("bids", Bid, envelope=False, time="at")
JSON = mr.Topic("bids", Bid, envelope=False, time="at", codec="json")
AVRO = mr.Topic("bids", Bid, envelope=False, time="at", codec="avro", avro=SCHEMA, confluent=True)
