"""How far the writers of a topic have vouched for it, as part of a batch's offsets."""

from collections.abc import Mapping

from millrace.log.writer_watermarks import History, WriterWatermark
from millrace.runners.batches import Offsets
from millrace.runners.upstream import follow_writers


class Writers:
    """What a log knows of the writers of `t`."""

    def __init__(self, *watermarks: tuple[str, int, int]) -> None:
        self.known: dict[str, list[WriterWatermark]] = {}
        for writer, watermark, offset in watermarks:
            self.known.setdefault(writer, []).insert(0, WriterWatermark("t", writer, watermark, [offset, 0]))

    def writer_watermarks(self, topic: str) -> History:
        return self.known if topic == "t" else {}


def at(offset: int, watermarks: Mapping[int, int] | None = None) -> Offsets:
    return Offsets({"t": {0: offset, 1: 0}}, 7, watermarks={"t": watermarks} if watermarks else {})


def followed(log: Writers, start: Offsets, offset: int) -> Mapping[int, int]:
    return follow_writers(log, ["t"], start, at(offset)).watermarks["t"]


def test_the_newest_that_holds_at_the_end_of_the_batch_counts() -> None:
    log = Writers(("w", 10, 2), ("w", 20, 5))
    assert followed(log, at(0), 1) == {1: 20}
    assert followed(log, at(0), 4) == {0: 10, 1: 20}
    assert followed(log, at(0), 5) == {0: 20, 1: 20}


def test_it_does_not_go_back_when_a_writer_has_gone_or_one_more_comes() -> None:
    start = at(5, {0: 20, 1: 20})
    assert followed(Writers(), start, 5) == {0: 20, 1: 20}
    assert followed(Writers(("w", 30, 2), ("new", 5, 2)), start, 5) == {0: 20, 1: 20}
    assert followed(Writers(("w", 30, 2), ("new", 25, 2)), start, 5) == {0: 25, 1: 25}


def test_topics_that_nobody_follows_are_left_alone() -> None:
    assert follow_writers(Writers(("w", 10, 0)), [], at(0), at(3)).watermarks == {}


def test_offsets_with_watermarks_are_stored_and_read_and_those_of_before_too() -> None:
    offsets = at(5, {0: 20})
    assert Offsets.from_json(offsets.to_json()) == offsets
    assert Offsets.from_json('{"topics": {"t": {"0": 5}}, "clock": 7}') == Offsets({"t": {0: 5}}, 7)
    assert follow_writers(Writers(), ["t"], at(0), at(1)) == at(1), "and no batch comes for nothing"
