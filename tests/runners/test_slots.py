"""Slots spread evenly over Spark's partitions, whatever their number."""

from collections import Counter

import pytest

from millrace.config import Settings
from millrace.runners.slots import choose_local_slots, choose_spark_layout, make_slot_labels, murmur3
from millrace.runners.state.folder import Identity


@pytest.mark.parametrize(("slots", "partitions"), [(1, 1), (4, 2), (8, 3), (5, 8), (128, 64), (128, 7)])
def test_no_partition_gets_two_slots_more_than_another(slots: int, partitions: int) -> None:
    found = make_slot_labels(slots, partitions)
    loads = Counter(murmur3(label) % partitions for label in found)
    assert len(set(found)) == slots
    assert max(loads.values()) - min(loads[number] for number in range(min(partitions, slots))) <= 1


def test_labels_never_change_because_state_is_found_by_them() -> None:
    assert make_slot_labels(4, 2) == (2, 0, 4, 1)
    assert make_slot_labels(8, 3) == (0, 1, 11, 2, 6, 12, 3, 13)


def test_the_hash_is_sparks() -> None:
    """As `SELECT hash(0), hash(1), hash(2), hash(-1)` says."""
    assert [murmur3(value) for value in (0, 1, 2)] == [933211791, -559580957, 1765031574]


@pytest.mark.parametrize(
    ("cores", "depth", "options", "layout"),
    [
        (4, 2, {}, (8, 4)),
        (4, 2, {"run_slots": 2}, (2, 2)),
        (2, 2, {}, (1, 1)),
        (2, 1, {}, (4, 2)),
        (2, 2, {"spark_partitions": 3}, (6, 3)),
        (96, 1, {}, (128, 96)),
    ],
)
def test_the_default_number_of_slots(
    cores: int, depth: int, options: dict[str, int], layout: tuple[int, int]
) -> None:
    settings = Settings().with_options(**options)
    assert choose_spark_layout(settings, None, cores=cores, depth=depth) == layout


def test_state_keeps_its_slots_and_partitions_unless_others_are_set() -> None:
    identity = Identity("id", ("job",), "fingerprint", slots=7, partitions=3)
    assert choose_spark_layout(Settings(), identity, cores=2, depth=2) == (7, 3)
    wider = Settings().with_options(run_slots=9)
    assert choose_spark_layout(wider, identity, cores=2, depth=2) == (9, 3)
    assert choose_local_slots(Settings()) == 1
    assert choose_local_slots(wider) == 9
