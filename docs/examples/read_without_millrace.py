"""Reads a topic that millrace wrote without millrace: python read_without_millrace.py localhost:9092
input.vehicle-positions.

The compacted topic millrace.schemas describes what each topic holds; its key is the topic's name. Both names
begin with the log's prefix, if it has one (`kafka://HOST:PORT/PREFIX`).
"""

import base64
import json
import sys
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory


def records(servers: str, topic: str) -> Iterator[Message]:
    """What a topic holds now, committed, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    waiting = len(partitions)
    while waiting:
        message = consumer.poll(30)
        if message is None:
            raise TimeoutError(f"{topic} at {servers} does not answer")
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            waiting -= 1
        else:
            raise RuntimeError(str(error))
    consumer.close()


def main(servers: str, topic: str, prefix: str = "") -> None:
    """Prints each event as JSON."""
    schemas = [
        record.value()
        for record in records(servers, f"{prefix}millrace.schemas")
        if record.key() == topic.encode()
    ]
    schema = json.loads(schemas[-1] or b"{}")
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema["descriptors"])).file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("millrace.Event" if schema["envelope"] else schema["type"])
    )
    for record in records(servers, prefix + topic):
        value = record.value() or b""
        if schema["codec"] == "json":
            print(value.decode())
        else:
            print(
                json_format.MessageToJson(
                    kind.FromString(value),
                    indent=None,
                    preserving_proto_field_name=True,
                    descriptor_pool=pool,
                )
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
