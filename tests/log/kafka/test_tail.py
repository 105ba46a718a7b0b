"""Following a topic of Kafka, in which transactions leave offsets without records."""

from collections import Counter
from itertools import count

import pytest

from log.children import texts
from millrace.log.kafka.log import KafkaLog

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("reading")]


def test_committed_records_are_yielded_once_and_aborted_ones_never(log: KafkaLog) -> None:
    log.ensure_raw("t", partitions=2)
    writer, numbers = log.writer("w"), count(1)

    def wait() -> bool:
        number = next(numbers)
        if number % 3 == 0:
            producer = log.transactional_producer("other")
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce(log.kafka_name("t"), b"taken back", partition=number % 2)
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            writer.commit(number, {"t": texts(*(f"{number}/{place}" for place in range(5)))})
        return number < 7

    shown = Counter(value for _, records in log.tail("t", wait=wait) for value in records.values.to_pylist())
    assert shown == Counter(f"{number}/{place}".encode() for number in (1, 2, 4, 5) for place in range(5))
    writer.close()


def test_records_are_yielded_before_the_broker_reports_the_end(log: KafkaLog) -> None:
    log.ensure_raw("t")
    writer = log.writer("w")
    writer.commit(1, {"t": texts("a", "b")})
    records, upto = log.read_available("t", 0, 0, 30)
    assert records.values.to_pylist() == [b"a", b"b"]
    assert upto in (2, 3), "the third offset is the transaction's own"
    while upto < 3:
        records, upto = log.read_available("t", 0, upto, 1)
        assert not len(records)
    assert log.end_offsets("t") == {0: 3}
    writer.close()
