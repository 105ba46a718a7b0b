"""What a log on Kafka makes of brokers that change places."""

import uuid
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from log.children import texts
from millrace.devtools.brokers import Cluster
from millrace.log import open_log
from millrace.log.kafka.log import KafkaLog

pytestmark = pytest.mark.kafka


TROUBLES = {
    "no leaders": KafkaError(KafkaError._NOENT, "No leaders found"),
    "not heard of it": KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART),
}


@pytest.mark.parametrize("answer", ["nothing", *TROUBLES])
def test_while_leadership_moves_offsets_are_asked_for_again(
    brokers: Cluster, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """They may answer with neither an offset nor an error, that none of them leads a partition, or that one
    has not heard of a topic yet: that is not where it ends.
    """
    log = open_log(f"{brokers.url}/own-{uuid.uuid4().hex[:8]}")
    assert isinstance(log, KafkaLog)
    log.ensure_raw("t")
    log.append("t", texts("a", "b"))
    ask, troubled = log._admin.list_offsets, [True]

    def reply(*args: Any, **options: Any) -> Any:
        found = ask(*args, **options)
        if troubled and troubled.pop():
            for place in found:
                found[place] = Future()
                if answer == "nothing":
                    found[place].set_result(SimpleNamespace(offset=OFFSET_INVALID))
                else:
                    found[place].set_exception(KafkaException(TROUBLES[answer]))
        return found

    monkeypatch.setattr(log._admin, "list_offsets", reply)
    assert log.end_offsets("t") == {0: 2}
    assert not troubled
    log.close()
