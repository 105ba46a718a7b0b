"""How many slots a run has, and on Spark which shuffle partition works on which slot.

A slot is a range of the 128 key groups, and holds the state of the keys in them. One core at a time works on
a slot, so slots are how keyed work is spread over cores. Three rules choose them:

1. What the settings say (`run.slots`, `spark.partitions`) counts. On Spark an existing state folder keeps
   what it has otherwise.
2. The local runner is one process: 1 slot.
3. Spark has as many partitions as cores, and 2 slots in each, so that `spark.partitions` may double later and
   no task is without work. On one or two cores, a job that changes keys on the way has 1 slot: each change of
   key is a stage of Spark's otherwise, with a shuffle and a state store of its own, and on two cores that
   costs more than the second core gains. The other core is busy anyway, with the source, the JVM and the
   broker.

Example: `local[4]`, nothing set.        4 partitions, 8 slots
         `local[4]`, run.slots = 2       2 partitions, 2 slots: a partition without a slot would be
                                         an empty task in each batch
         `local[2]`, two changes of key  1 partition, 1 slot
         `local[2]`, one change of key   2 partitions, 4 slots

Spark shuffles by its own hash of a column, so that column holds a label for each slot, chosen so that the
hash spreads slots evenly.

Example: 4 slots over 2 partitions. Slot `i` is to land in partition `i % 2`. Labels are tried from 0 on:

    label            0    1    2    3    4
    hash mod 2       1    1    0    1    0
    taken by slot    1    3    0    -    2      label 3 lands in partition 1, which has its labels

State in a checkpoint is found by these labels, so they never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millrace.values.key_hash import KEY_GROUPS

if TYPE_CHECKING:
    from millrace.config import Settings
    from millrace.runners.state.folder import Identity

FEW_CORES = 2
"""With no more cores than this, a job that changes keys on the way has one slot."""
SLOTS_PER_PARTITION = 2
_WORD = 0xFFFFFFFF


class SlotLayout(NamedTuple):
    """Into how many slots keys are divided, and to how many partitions Spark shuffles them."""

    slots: int
    partitions: int


def choose_local_slots(settings: Settings) -> int:
    """The slots of a run on the local runner."""
    return settings.run.slots or 1


def choose_spark_layout(
    settings: Settings, identity: Identity | None, *, cores: int, depth: int
) -> SlotLayout:
    """The slots and partitions of a run on Spark.
    `identity`: of its state, if it has any; `depth`: how often keys change.
    """
    partitions, slots = settings.spark.partitions, settings.run.slots
    if identity is not None:
        return SlotLayout(slots or identity.slots, partitions or identity.partitions)
    if partitions is None and slots is None and cores <= FEW_CORES and depth > 1:
        return SlotLayout(1, 1)
    partitions = partitions or min(cores, slots or cores)
    return SlotLayout(slots or min(KEY_GROUPS, SLOTS_PER_PARTITION * partitions), partitions)


def make_slot_labels(slots: int, partitions: int) -> tuple[int, ...]:
    """A label for each slot; slot `i` lands in partition `i % partitions`,
    so that no task gets more slots than another.
    """
    labels: dict[int, int] = {}
    waiting = {
        remainder: [slot for slot in range(slots) if slot % partitions == remainder]
        for remainder in range(partitions)
    }
    label = 0
    while len(labels) < slots:
        slot = next(iter(waiting[murmur3(label) % partitions]), None)
        if slot is not None:
            waiting[slot % partitions].pop(0)
            labels[slot] = label
        label += 1
    return tuple(labels[slot] for slot in range(slots))


def murmur3(value: int, seed: int = 42) -> int:
    """Spark's hash of an `int` column, by which it shuffles (modulo the number
    of partitions, never negative).
    """
    k = _rotate(((value & _WORD) * 0xCC9E2D51) & _WORD, 15) * 0x1B873593 & _WORD
    h = (_rotate(seed ^ k, 13) * 5 + 0xE6546B64) & _WORD
    h ^= 4
    h = ((h ^ h >> 16) * 0x85EBCA6B) & _WORD
    h = ((h ^ h >> 13) * 0xC2B2AE35) & _WORD
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD
